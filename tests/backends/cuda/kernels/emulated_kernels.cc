// ringd's kernels for the emulated driver: the bodies that nvcc compiles for GPUs, for the host.
#include <cuda.h>

#include <cstdint>

#include "backends/cuda/kernels/move_segment.h"
#include "backends/cuda/kernels/move_tile.h"
#include "tests/gpu/emulator/cuda/emulator_api.h"

namespace {

using ringd::MoveSegment;

int MoveSegments(const RingdEmulatorLaunch* launch, const void* const* parameters) {
  const auto table = *static_cast<const unsigned long long*>(parameters[0]);
  const auto segment_count = *static_cast<const std::uint32_t*>(parameters[1]);
  const auto tile_count = *static_cast<const std::uint32_t*>(parameters[2]);
  const auto* const segments = static_cast<const MoveSegment*>(
      launch->alias(launch->device, table, segment_count * sizeof(MoveSegment)));
  if (segments == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto memory = [launch](std::uint64_t address, std::size_t bytes) {
    return launch->alias(launch->device, address, bytes);
  };
  const unsigned threads = launch->block[0];
  for (std::uint32_t tile = 0; tile < tile_count; ++tile) {
    for (unsigned lane = 0; lane < threads; ++lane) {
      if (!ringd::kernels::MoveTile(segments, segment_count, tile, {lane, threads}, memory)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
      }
    }
  }
  return CUDA_SUCCESS;
}

constexpr std::size_t kMoveParameters[] = {8, 4, 4};

const RingdEmulatorKernel kTable[] = {{ringd::kMoveKernel, MoveSegments, 3, kMoveParameters},
                                      {nullptr, nullptr, 0, nullptr}};

}  // namespace

const RingdEmulatorKernel* ringd_emulator_kernels() { return kTable; }
