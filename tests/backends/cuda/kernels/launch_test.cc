// From the embedded images to tensors in a buffer, on the emulated driver.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "backends/cuda/kernels/kernel_images.h"
#include "backends/cuda/kernels/move_plan.h"
#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd {
namespace {

using emulator::Child;

const emulator::Variables kSettings = {
    {"KERNELS", "tests/backends/cuda/kernels/libemulated_kernels.so"}};

// Launches the kernel of the images that ringd carries.
void Launch(const Child& child, const MovePlan& plan, CUstream stream) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CHILD_OK(child.cuda().cuModuleLoadData(&module, KernelImages().data()));
  CHILD_OK(child.cuda().cuModuleGetFunction(&function, module, kMoveKernel));
  const auto segments = plan.segments();
  CUdeviceptr table = child.NewMemory(segments.size_bytes());
  std::memcpy(child.emulator().alias(table, segments.size_bytes()), segments.data(),
              segments.size_bytes());
  auto segment_count = static_cast<std::uint32_t>(segments.size());
  std::uint32_t tile_count = plan.tile_count();
  void* parameters[] = {&table, &segment_count, &tile_count};
  CHILD_OK(child.cuda().cuLaunchKernel(function, plan.BlockCount(132), 1, 1, kMoveThreads, 1, 1, 0,
                                       stream, parameters, nullptr));
}

MoveSegment Segment(CUdeviceptr source, CUdeviceptr destination, std::uint64_t count) {
  MoveSegment segment;
  segment.source = source;
  segment.destination = destination;
  segment.count = count;
  segment.factor = 0.5;
  segment.destination_type = DataType::kFloat64;
  return segment;
}

TEST_CASE("The kernel of the embedded images packs, casts and scales in one launch") {
  CHECK(emulator::RunEmulated(kSettings, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          constexpr std::uint64_t kCount = 10'000;
          const CUdeviceptr tensors[] = {child.NewMemory(kCount * 4), child.NewMemory(4)};
          const CUdeviceptr bucket = child.NewMemory((kCount + 1) * 8);
          CHILD_OK(child.cuda().cuMemsetD32Async(tensors[0], 0x40400000, kCount, stream));  // 3
          CHILD_OK(child.cuda().cuMemsetD32Async(tensors[1], 0x40a00000, 1, stream));       // 5
          MovePlan plan;
          CHILD_CHECK(plan.Add(Segment(tensors[0], bucket, kCount)).ok());
          CHILD_CHECK(plan.Add(Segment(tensors[1], bucket + kCount * 8, 1)).ok());
          Launch(child, plan, stream);
          CHILD_OK(child.cuda().cuStreamSynchronize(stream));
          std::vector<double> values(kCount + 1);
          std::memcpy(values.data(), child.emulator().alias(bucket, values.size() * 8),
                      values.size() * 8);
          for (std::uint64_t i = 0; i < kCount; ++i) CHILD_CHECK(values[i] == 1.5);
          CHILD_CHECK(values[kCount] == 2.5);
        }) == "");
}

TEST_CASE("The kernel: a tensor that has been freed is a fatal error") {
  CHECK(emulator::RunEmulated(kSettings, [](const Child& child) {
          child.UseDevice();
          const CUstream stream = child.NewStream();
          const CUdeviceptr tensor = child.NewMemory(64);
          const CUdeviceptr bucket = child.NewMemory(128);
          CHILD_OK(child.cuda().cuMemFree(tensor));
          MovePlan plan;
          CHILD_CHECK(plan.Add(Segment(tensor, bucket, 16)).ok());
          Launch(child, plan, stream);
          CHILD_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, child.cuda().cuStreamSynchronize(stream));
        }) == "");
}

}  // namespace
}  // namespace ringd
