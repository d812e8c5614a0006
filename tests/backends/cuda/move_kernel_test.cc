#include "backends/cuda/move_kernel.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "tests/backends/cuda/opened_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

const emulator::Variables kSettings = {
    {"KERNELS", "tests/backends/cuda/kernels/libemulated_kernels.so"}};

// `count` elements of float32, halved, from `source` to `destination`.
MovePlan Halve(const Child& child, DeviceAddress source, DeviceAddress destination,
               std::uint64_t count) {
  MoveSegment segment;
  segment.source = source;
  segment.destination = destination;
  segment.count = count;
  segment.factor = 0.5;
  MovePlan plan;
  CHILD_STATUS(plan.Add(segment));
  return plan;
}

std::uint64_t Calls(const Child& child, const char* name) { return child.emulator().calls(name); }

TEST_CASE("MoveKernel: one launch, of a table that is copied once") {
  CHECK(RunEmulated(kSettings, [](const Child& child) {
          const auto context = OpenGpu(child);
          const ScopedContext scope(*context);
          const auto kernel = CHILD_VALUE(MoveKernel::Load(context));
          const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
          MoveTables tables(context, stream);
          const CUdeviceptr memory = child.NewMemory(800);
          CHILD_OK(child.cuda().cuMemsetD32Async(memory, 0x41000000, 100,
                                                 static_cast<CUstream>(stream.handle())));
          for (std::uint64_t use = 1; use <= 3; ++use) {
            const MovePlan plan = Halve(child, memory, memory, 100);
            const auto table = CHILD_VALUE(tables.Find(plan.segments(), use, 0));
            CHILD_STATUS(kernel->Launch(stream.handle(), plan, table));
          }
          CHILD_STATUS(stream.WaitIdle(Clock::now() + std::chrono::seconds(10)));
          float value = 0;
          std::memcpy(&value, child.emulator().alias(memory + 396, 4), 4);
          CHILD_CHECK(value == 1.0F);
          CHILD_CHECK(Calls(child, "cuLaunchKernel") == 3);
          CHILD_CHECK(Calls(child, "cuMemcpyHtoDAsync") == 1);
          CHILD_STATUS(kernel->Launch(stream.handle(), MovePlan(), 0));
          CHILD_CHECK(Calls(child, "cuLaunchKernel") == 3);
        }) == "");
}

TEST_CASE("MoveTables: a table in use is not overwritten") {
  CHECK(
      RunEmulated(kSettings, [](const Child& child) {
        const auto context = OpenGpu(child);
        const ScopedContext scope(*context);
        const CudaStream stream = CHILD_VALUE(CudaStream::Create(context));
        MoveTables tables(context, stream);
        const CUdeviceptr memory = child.NewMemory(800);
        std::uint64_t use = 0;
        for (std::size_t i = 0; i < MoveTables::kTables; ++i) {
          ++use;
          CHILD_STATUS(tables.Find(Halve(child, memory, memory, use).segments(), use, 0).status());
        }
        const MovePlan plan = Halve(child, memory, memory, 100);
        CHILD_REFUSED(absl::StatusCode::kUnavailable, "in use",
                      tables.Find(plan.segments(), use + 1, 0).status());
        // The one that is there is found all the same.
        CHILD_STATUS(tables.Find(Halve(child, memory, memory, 5).segments(), use + 1, 0).status());
        const std::uint64_t allocating = Calls(child, "allocating");
        CHILD_STATUS(tables.Find(plan.segments(), use + 2, 1).status());
        // Its place has room enough.
        CHILD_CHECK(Calls(child, "allocating") == allocating);
      }) == "");
}

}  // namespace
}  // namespace ringd
