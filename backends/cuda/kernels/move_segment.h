// What the kernel that packs and unpacks is told: a table of segments, each a run of elements that
// is copied, cast and scaled. Host and device read the same bytes.
#ifndef RINGD_BACKENDS_CUDA_KERNELS_MOVE_SEGMENT_H_
#define RINGD_BACKENDS_CUDA_KERNELS_MOVE_SEGMENT_H_

#include <cstdint>

#include "proto/types/data_type.h"

namespace ringd {

// Addresses are the device's, of any alignment. Source and destination may be the same address if
// the types have one size; otherwise no segment's destination may overlap anything that is read.
struct MoveSegment {
  std::uint64_t source = 0;
  std::uint64_t destination = 0;
  std::uint64_t count = 0;   // of elements, > 0
  double factor = 1.0;       // with `divisor` as in Scaling, proto/reduce/reduce.h
  std::int64_t divisor = 1;  // > 0
  std::uint32_t first_tile = 0;
  DataType source_type = DataType::kFloat32;
  DataType destination_type = DataType::kFloat32;
  std::uint16_t reserved = 0;
};
static_assert(sizeof(MoveSegment) == 48);

// The unit in which work is given to blocks, so that one large tensor keeps as many of them busy as
// a thousand small ones. Tiles don't cross segments.
constexpr std::uint32_t kMoveTileBytes = 32 << 10;
constexpr unsigned kMoveThreads = 256;

// The kernel's name. Its parameters: the table's address, the number of segments and the number of
// tiles, both std::uint32_t. Any number of blocks of any number of threads does the work.
inline constexpr char kMoveKernel[] = "ringd_move_segments";

// The elements of a whole tile: by the wider of the two types, so that no tile moves more than
// kMoveTileBytes in either direction.
constexpr std::uint64_t MoveTileElements(DataType source, DataType destination) noexcept {
  const std::uint64_t from = SizeOf(source);
  const std::uint64_t to = SizeOf(destination);
  return kMoveTileBytes / (from > to ? from : to);
}

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_KERNELS_MOVE_SEGMENT_H_
