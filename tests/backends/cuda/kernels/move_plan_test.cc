#include "backends/cuda/kernels/move_plan.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

namespace ringd {
namespace {

MoveSegment Segment(std::uint64_t count, DataType from = DataType::kFloat32,
                    DataType to = DataType::kFloat32) {
  MoveSegment segment;
  segment.source = 0x1000;
  segment.destination = 0x2000;
  segment.count = count;
  segment.source_type = from;
  segment.destination_type = to;
  return segment;
}

TEST_CASE("MovePlan: a segment has as many tiles as its wider type fills") {
  constexpr std::uint64_t kWhole = kMoveTileBytes / 4;
  MovePlan plan;
  REQUIRE(plan.Add(Segment(1)).ok());
  REQUIRE(plan.Add(Segment(kWhole)).ok());
  REQUIRE(plan.Add(Segment(kWhole + 1)).ok());
  REQUIRE(plan.Add(Segment(kWhole, DataType::kFloat16, DataType::kFloat64)).ok());
  REQUIRE(plan.segments().size() == 4);
  CHECK(plan.segments()[0].first_tile == 0);
  CHECK(plan.segments()[1].first_tile == 1);
  CHECK(plan.segments()[2].first_tile == 2);
  CHECK(plan.segments()[3].first_tile == 4);
  CHECK(plan.tile_count() == 6);
}

TEST_CASE("MovePlan: an empty segment is left out, and Clear begins anew") {
  MovePlan plan;
  REQUIRE(plan.Add(Segment(0)).ok());
  CHECK(plan.segments().empty());
  CHECK(plan.BlockCount(64) == 0);
  REQUIRE(plan.Add(Segment(5)).ok());
  plan.Clear();
  CHECK(plan.segments().empty());
  CHECK(plan.tile_count() == 0);
}

TEST_CASE("MovePlan: launches a block for each tile, and no more than run at once") {
  MovePlan plan;
  REQUIRE(plan.Add(Segment(10 * kMoveTileBytes / 4)).ok());
  CHECK(plan.BlockCount(64) == 10);
  CHECK(plan.BlockCount(4) == 4);
}

TEST_CASE("MovePlan: types that are not moved, and casts of integers, are named and not added") {
  MovePlan plan;
  for (const DataType type : {DataType::kBool, DataType::kInt16, DataType::kUint16}) {
    const absl::Status status = plan.Add(Segment(1, type, type));
    CHECK(absl::IsInvalidArgument(status));
    CHECK(status.message().find(Name(type)) != absl::string_view::npos);
  }
  CHECK(absl::IsInvalidArgument(plan.Add(Segment(1, static_cast<DataType>(99)))));
  CHECK(absl::IsInvalidArgument(plan.Add(Segment(1, DataType::kInt32, DataType::kInt64))));
  CHECK(absl::IsInvalidArgument(plan.Add(Segment(1, DataType::kInt32, DataType::kFloat32))));
  CHECK(absl::IsInvalidArgument(plan.Add(Segment(1, DataType::kFloat32, DataType::kInt32))));
  CHECK(plan.segments().empty());
}

TEST_CASE("MovePlan: a divisor below 1 and addresses beyond the end are refused") {
  MovePlan plan;
  MoveSegment segment = Segment(1);
  segment.divisor = 0;
  CHECK(absl::IsInvalidArgument(plan.Add(segment)));
  segment = Segment(std::numeric_limits<std::uint64_t>::max() / 4 + 1);
  CHECK(absl::IsInvalidArgument(plan.Add(segment)));
  segment = Segment(2);
  segment.destination = std::numeric_limits<std::uint64_t>::max() - 7;
  CHECK(absl::IsInvalidArgument(plan.Add(segment)));
  CHECK(plan.segments().empty());
}

TEST_CASE("MovePlan: more tiles than a launch can count are refused, and nothing is added") {
  MovePlan plan;
  constexpr std::uint64_t kWhole = kMoveTileBytes / 8;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  MoveSegment segment = Segment(kWhole * kMost, DataType::kInt64, DataType::kInt64);
  REQUIRE(plan.Add(segment).ok());
  CHECK(plan.tile_count() == kMost);
  CHECK(absl::IsResourceExhausted(plan.Add(Segment(1))));
  CHECK(plan.segments().size() == 1);
}

}  // namespace
}  // namespace ringd
