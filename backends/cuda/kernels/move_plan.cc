#include "backends/cuda/kernels/move_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr auto kMostTiles = std::numeric_limits<std::uint32_t>::max();

// Those that NCCL has, too.
bool IsMoved(DataType type) {
  return IsValid(type) && type != DataType::kBool && type != DataType::kUint16 &&
         type != DataType::kInt16;
}

bool WrapsAround(std::uint64_t address, std::uint64_t count, std::size_t size) {
  constexpr auto kEnd = std::numeric_limits<std::uint64_t>::max();
  return count > kEnd / size || address > kEnd - count * size;
}

absl::Status Check(const MoveSegment& segment) {
  for (const DataType type : {segment.source_type, segment.destination_type}) {
    if (!IsMoved(type)) {
      return absl::InvalidArgumentError(
          absl::StrCat("elements of type ", Name(type), " are not moved on GPUs"));
    }
  }
  if (segment.source_type != segment.destination_type &&
      !(IsFloatingPoint(segment.source_type) && IsFloatingPoint(segment.destination_type))) {
    return absl::InvalidArgumentError(absl::StrCat("there is no cast from ",
                                                   Name(segment.source_type), " to ",
                                                   Name(segment.destination_type), " on GPUs"));
  }
  if (segment.divisor < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements can't be divided by ", segment.divisor));
  }
  if (WrapsAround(segment.source, segment.count, SizeOf(segment.source_type)) ||
      WrapsAround(segment.destination, segment.count, SizeOf(segment.destination_type))) {
    return absl::InvalidArgumentError(
        absl::StrCat(segment.count, " elements of type ", Name(segment.source_type), " from 0x",
                     absl::Hex(segment.source), " to 0x", absl::Hex(segment.destination),
                     " reach beyond the end of memory"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MovePlan::Add(MoveSegment segment) {
  if (absl::Status checked = Check(segment); !checked.ok()) return checked;
  if (segment.count == 0) return absl::OkStatus();
  const std::uint64_t whole = MoveTileElements(segment.source_type, segment.destination_type);
  const std::uint64_t tiles = (segment.count - 1) / whole + 1;
  if (tiles > kMostTiles - tile_count_ || segments_.size() >= kMostTiles) {
    return absl::ResourceExhaustedError(
        absl::StrCat("one launch can't move ", segment.count, " elements more"));
  }
  segment.first_tile = tile_count_;
  segment.reserved = 0;
  segments_.push_back(segment);
  tile_count_ += static_cast<std::uint32_t>(tiles);
  return absl::OkStatus();
}

void MovePlan::Clear() {
  segments_.clear();
  tile_count_ = 0;
}

unsigned MovePlan::BlockCount(unsigned most) const noexcept { return std::min(most, tile_count_); }

}  // namespace ringd
