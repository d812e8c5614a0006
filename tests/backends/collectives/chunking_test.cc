#include "backends/collectives/chunking.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace ringd {

TEST_CASE("Chunking: blocks and chunks cover every byte once, in order, on cache lines") {
  for (const std::size_t total : {0, 1, 63, 64, 65, 128, 1000, 4096, 100'003}) {
    for (std::uint32_t blocks = 1; blocks <= 9; ++blocks) {
      for (const std::uint32_t chunk_bytes : {64u, 192u, 4096u}) {
        const Chunking chunking(total, blocks, chunk_bytes);
        std::size_t next = 0;
        for (std::uint32_t block = 0; block < blocks; ++block) {
          REQUIRE(chunking.Block(block).begin == next);
          REQUIRE(chunking.ChunkCount(block) <= chunking.MaxChunkCount());
          for (std::uint32_t chunk = 0; chunk < chunking.ChunkCount(block); ++chunk) {
            const ByteRange range = chunking.Chunk(block, chunk);
            REQUIRE(range.begin == next);
            REQUIRE(range.begin % 64 == 0);
            REQUIRE(range.size() > 0);
            REQUIRE(range.size() <= chunk_bytes);
            next = range.end;
          }
          REQUIRE(chunking.Block(block).end == next);
        }
        REQUIRE(next == total);
      }
    }
  }
}

TEST_CASE("Chunking: blocks differ by one cache line at most") {
  const Chunking chunking(100 * 64, 7, 128);
  for (std::uint32_t block = 0; block < 7; ++block) {
    CHECK(chunking.Block(block).size() / 64 >= 14);
    CHECK(chunking.Block(block).size() / 64 <= 15);
  }
}

}  // namespace ringd
