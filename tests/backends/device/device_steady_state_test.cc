// What a bucket costs once training repeats itself, counted by the emulated driver.
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/backends/device/tested_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::Environment;
using emulator::NcclRank;
using emulator::RunRanks;

const Environment kSettings = {{"RINGD_EMULATOR_CUDA_KERNELS", kMoveKernels},
                               {"RINGD_EMULATOR_NCCL_MAX_DELAY_US", "200"}};
constexpr std::uint64_t kBuckets = 20;

using Calls = std::map<std::string, std::uint64_t>;

Calls CallsSoFar(const Child& child) {
  Calls calls;
  for (const char* const name :
       {"cuLaunchKernel", "cuStreamWaitValue64", "cuStreamWriteValue64", "cuStreamBatchMemOp",
        "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuMemsetD8Async", "cuLaunchHostFunc",
        "synchronising", "allocating"}) {
    calls[name] = child.emulator().calls(name);
  }
  return calls;
}

// The calls of a bucket that has come before: those of kBuckets, which are multiples of it. What
// makes tensors ready, and looks at results, makes none.
Calls CallsOfOne(const Child& child, const NcclRank& rank,
                 const std::function<std::vector<DeviceTensor>(std::uint64_t)>& tensors,
                 std::uint32_t pairs = 1) {
  TestedGpu gpu(child, rank.rank());
  const ImportedSlab slab = gpu.NewSlab();
  const SlabView view(child, slab);
  gpu.Connect(IdOf(rank), rank.rank(), rank.size());
  Calls before;
  std::uint64_t value = 0;
  for (const bool is_counted : {false, true}) {
    if (is_counted) before = CallsSoFar(child);
    for (std::uint64_t i = 0; i < kBuckets; ++i) {
      DeviceBucket bucket = BucketOf(tensors(i), ++value);
      for (std::uint32_t pair = 1; pair < pairs; ++pair) {
        bucket.ready.push_back({kSlab, ReadySlot(pair), value});
        bucket.done.push_back({kSlab, DoneSlot(pair), value});
      }
      gpu.thread().Enqueue(std::move(bucket));
      for (std::uint32_t pair = 0; pair < pairs; ++pair) view.SetSlot(ReadySlot(pair), value);
    }
    for (std::uint64_t i = 0; i < kBuckets; ++i) {
      CHILD_STATUS(gpu.Wait<DeviceBucketEnded>().status);
    }
  }
  Calls one = CallsSoFar(child);
  for (auto& [name, count] : one) {
    count -= before[name];
    CHILD_CHECK(count % kBuckets == 0);
    count /= kBuckets;
  }
  return one;
}

void CheckCalls(const Child& child, const Calls& found, std::uint64_t launches,
                bool is_batched = false) {
  for (const auto& [name, count] : found) {
    std::uint64_t expected = 0;
    if (name == "cuLaunchKernel") expected = launches;
    if (name == "cuStreamWaitValue64" || name == "cuStreamWriteValue64") {
      expected = is_batched ? 0 : 1;
    }
    if (name == "cuStreamBatchMemOp" && is_batched) expected = 2;
    child.Check(count == expected, (name + ": " + std::to_string(count)).c_str(), __FILE__,
                __LINE__);
  }
}

TEST_CASE("Steady state: a packed bucket costs 2 launches and 2 stream memory operations") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          const Calls found = CallsOfOne(child, rank, [](std::uint64_t i) {
            std::vector<DeviceTensor> tensors;
            for (std::uint64_t t = 0; t <= i; ++t) tensors.push_back(TensorAt(256 * t, 256 * t, 3));
            tensors.push_back(TensorAt(16384, 20000, 700));
            return tensors;
          });
          CheckCalls(child, found, 2);
        }) == "");
}

TEST_CASE("Steady state: a bucket that waits for several slots has no more calls") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          const auto tensors = [](std::uint64_t) {
            return std::vector<DeviceTensor>{TensorAt(0, 0, 100), TensorAt(8192, 8192, 3)};
          };
          CheckCalls(child, CallsOfOne(child, rank, tensors, 40), 2, true);
        }) == "");
}

TEST_CASE("Steady state: tensors in one piece cost no launch, and are copied nowhere") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          const Calls found = CallsOfOne(child, rank, [](std::uint64_t i) {
            const std::uint64_t at = 4096 * i;
            return std::vector<DeviceTensor>{TensorAt(at, at, 100), TensorAt(at + 400, at + 400, 3),
                                             TensorAt(at + 412, at + 412, 200)};
          });
          CheckCalls(child, found, 0);
        }) == "");
}

}  // namespace
}  // namespace ringd
