// The kernel that packs a bucket's tensors into its buffer, and takes them out again.
#include "backends/cuda/kernels/move_tile.h"

namespace {

struct DeviceMemory {
  __host__ __device__ void* operator()(std::uint64_t address, std::size_t) const {
    return reinterpret_cast<void*>(address);
  }
};

}  // namespace

// Named by ringd::kMoveKernel. MovePlan has checked what the table says.
extern "C" __global__ void ringd_move_segments(const ringd::MoveSegment* segments,
                                               std::uint32_t segment_count,
                                               std::uint32_t tile_count) {
  const ringd::kernels::Lane lane{threadIdx.x, blockDim.x};
  for (std::uint32_t tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    ringd::kernels::MoveTile(segments, segment_count, tile, lane, DeviceMemory{});
  }
}
