#include "proto/shm/staging_progress.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>

namespace ringd {
namespace {

TEST_CASE("StagingProgress: any tensor has up to 64 pieces, which cover it") {
  for (std::uint64_t bytes = 1; bytes < std::uint64_t{1} << 40; bytes += bytes / 7 + 1) {
    const std::uint64_t length = StagingPieceBytes(bytes);
    const std::uint64_t count = (bytes + length - 1) / length;
    REQUIRE(length % kStagingPieceAlignment == 0);
    REQUIRE(length >= kLeastStagingPieceBytes);
    REQUIRE(count <= kMaxStagingPieces);
    REQUIRE(std::popcount(AllStagingPieces(bytes)) == static_cast<int>(count));
    REQUIRE(std::countr_one(AllStagingPieces(bytes)) == static_cast<int>(count));
  }
}

TEST_CASE("StagingProgress: a range has the pieces of its first and last byte, and all between") {
  constexpr std::uint64_t kTensor = std::uint64_t{8} << 20;
  const std::uint64_t length = StagingPieceBytes(kTensor);
  CHECK(StagingPieces(kTensor, 0, 1) == 0b1);
  CHECK(StagingPieces(kTensor, 0, length) == 0b1);
  CHECK(StagingPieces(kTensor, 0, length + 1) == 0b11);
  CHECK(StagingPieces(kTensor, length - 1, length + 1) == 0b11);
  CHECK(StagingPieces(kTensor, length, 3 * length) == 0b110);
  CHECK(StagingPieces(kTensor, kTensor - 1, kTensor) == std::bit_floor(AllStagingPieces(kTensor)));
}

}  // namespace
}  // namespace ringd
