// The table for one launch of the kernel that packs and unpacks.
#ifndef RINGD_BACKENDS_CUDA_KERNELS_MOVE_PLAN_H_
#define RINGD_BACKENDS_CUDA_KERNELS_MOVE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "backends/cuda/kernels/move_segment.h"

namespace ringd {

// Collects segments and divides them into tiles. Packing and unpacking are the same thing: who is
// source and who is destination is the segments' matter. Does not touch the memory that they name.
//
// Thread safety: none, one user at a time. Invariant: every pair of types in segments() is one that
// the kernel knows, no segment is empty, and first_tile ascends.
class MovePlan {
 public:
  // Adds one run of elements; `segment.first_tile` is set here. An empty one is left out.
  //   kInvalidArgument: types that the kernel doesn't move (bool, 16-bit integers), a cast from or
  //   to an integer, a divisor below 1, an address range that wraps around.
  //   kResourceExhausted: more than 2^32 - 1 tiles, which are 128 TiB, or as many segments.
  // Nothing is added in either case.
  absl::Status Add(MoveSegment segment);

  void Clear();

  // What is to be copied to the device, where the kernel's first parameter points.
  std::span<const MoveSegment> segments() const noexcept { return segments_; }
  std::uint32_t tile_count() const noexcept { return tile_count_; }

  // How many blocks to launch where `most` run at once: one for each tile at most. 0: launch none.
  unsigned BlockCount(unsigned most) const noexcept;

 private:
  std::vector<MoveSegment> segments_;
  std::uint32_t tile_count_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_KERNELS_MOVE_PLAN_H_
