#include "backends/block_map.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <span>
#include <vector>

namespace ringd {

TEST_CASE("BlockMap: even blocks and chunks cover every byte once, in order, on cache lines") {
  for (const std::size_t total : {0, 1, 63, 64, 65, 128, 1000, 4096, 100'003}) {
    for (std::uint32_t blocks = 1; blocks <= 9; ++blocks) {
      for (const std::uint32_t chunk_bytes : {64u, 192u, 4096u}) {
        const BlockMap map = BlockMap::Even(total, blocks, chunk_bytes);
        std::size_t next = 0;
        for (std::uint32_t block = 0; block < blocks; ++block) {
          REQUIRE(map.Block(block).begin == next);
          REQUIRE((map.Block(block).empty() || map.BlockAt(map.Block(block).begin) == block));
          REQUIRE((!map.Block(block).empty() || map.HasEmptyBlock()));
          REQUIRE(map.ChunkCount(block) <= map.MaxChunkCount());
          for (std::uint32_t chunk = 0; chunk < map.ChunkCount(block); ++chunk) {
            const ByteRange range = map.Chunk(block, chunk);
            REQUIRE(range.begin == next);
            REQUIRE(range.begin % 64 == 0);
            REQUIRE(range.size() > 0);
            REQUIRE(range.size() <= chunk_bytes);
            next = range.end;
          }
          REQUIRE(map.Block(block).end == next);
        }
        REQUIRE(next == total);
      }
    }
  }
}

TEST_CASE("BlockMap: even blocks differ by one cache line at most") {
  const BlockMap map = BlockMap::Even(100 * 64, 7, 128);
  for (std::uint32_t block = 0; block < 7; ++block) {
    CHECK(map.Block(block).size() / 64 >= 14);
    CHECK(map.Block(block).size() / 64 <= 15);
  }
}

TEST_CASE("BlockMap: given blocks are cut from where they begin, and empty ones have no chunks") {
  const std::vector<ByteRange> blocks = {{0, 0}, {4, 204}, {204, 204}, {256, 264}, {264, 264}};
  const BlockMap map = BlockMap::Of(blocks, 128);
  CHECK(map.block_count() == 5);
  CHECK(map.HasEmptyBlock());
  CHECK(map.MaxChunkCount() == 2);
  for (std::uint32_t block = 0; block < 5; ++block) CHECK(map.Block(block) == blocks[block]);
  CHECK(map.ChunkCount(0) == 0);
  CHECK(map.ChunkCount(1) == 2);
  CHECK(map.Chunk(1, 0) == ByteRange{4, 132});
  CHECK(map.Chunk(1, 1) == ByteRange{132, 204});
  CHECK(map.ChunkCount(2) == 0);
  CHECK(map.Chunk(3, 0) == ByteRange{256, 264});
  CHECK(map.BlockAt(4) == 1);
  CHECK(map.BlockAt(203) == 1);
  CHECK(map.BlockAt(263) == 3);
  CHECK_FALSE(BlockMap::Of(std::span(blocks).subspan(1, 1), 128).HasEmptyBlock());
}

}  // namespace ringd
