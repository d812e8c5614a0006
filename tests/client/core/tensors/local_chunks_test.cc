#include "client/core/tensors/local_chunks.h"

#include <bit>
#include <catch2/catch.hpp>

namespace ringd::client {
namespace {

TEST_CASE("HomeChunks: every chunk is at home at exactly one member, who begins with it") {
  const std::uint32_t members = GENERATE(1, 2, 3, 7, 28, 29, 192);
  const std::uint32_t chunks = GENERATE(1, 2, 5, 27, 28);
  std::uint32_t all = 0;
  for (std::uint32_t m = 0; m < members; ++m) {
    const std::uint32_t home = HomeChunks(m, members, chunks);
    CHECK((all & home) == 0);
    all |= home;
    if (home != 0) {
      CHECK(FirstHomeChunk(m, members, chunks) ==
            static_cast<std::uint32_t>(std::countr_zero(home)));
    }
  }
  CHECK(all == (1U << chunks) - 1);
}

TEST_CASE("PieceBytes: the pieces of all members fit into the scratch memory") {
  const std::uint32_t members = GENERATE(2, 3, 8, 33, 64, 192);
  for (std::uint32_t pieces = 1; pieces < members; ++pieces) {
    CHECK(PieceBytes(pieces) * pieces <= ScratchBytes(members));
    CHECK(PieceBytes(pieces) % kChunkAlignment == 0);
  }
}

}  // namespace
}  // namespace ringd::client
