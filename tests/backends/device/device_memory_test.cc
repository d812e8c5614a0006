// A GPU's thread that finds no device memory.
#include <catch2/catch.hpp>
#include <cstddef>

#include "tests/backends/device/tested_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::NcclRank;
using emulator::RunRanks;

TEST_CASE("No memory for the fusion buffer: how much, on which GPU, and which setting") {
  CHECK(RunRanks(1, With({{"RINGD_EMULATOR_CUDA_MEMORY_MIB", "4"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   gpu.thread().Connect(kWorld, IdOf(rank), 0, 1, 64 << 20, kSlab,
                                        Clock::now() + kPatience);
                   const auto connected = gpu.Wait<DeviceCommunicatorConnected>();
                   constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
                   CHILD_REFUSED(kExhausted, "67108864 bytes", connected.status);
                   CHILD_REFUSED(kExhausted, gpu.context()->uuid(), connected.status);
                   CHILD_REFUSED(kExhausted, "`fusion_setting`", connected.status);
                 }) == "");
}

TEST_CASE("A slab that finds no memory waits for it") {
  constexpr DeviceSlabId kSecond{8};
  constexpr DeviceSlabId kThird{9};
  const auto answers = [](TestedGpu* gpu, DeviceSlabId id, absl::StatusCode expected) {
    auto created = gpu->Wait<DeviceSlabCreated>();
    return created.slab == id && created.status.code() == expected;
  };
  CHECK(RunRanks(1, With({{"RINGD_EMULATOR_CUDA_MEMORY_MIB", "64"}}),
                 [&](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   constexpr std::size_t kMost = 40 << 20;
                   gpu.thread().CreateSlab(kSlab, kMost);
                   CHILD_CHECK(answers(&gpu, kSlab, absl::StatusCode::kOk));
                   gpu.thread().CreateSlab(kSecond, kMost);
                   gpu.thread().CreateSlab(kThird, kMost);
                   gpu.thread().ReleaseSlab(kThird, {});
                   CHILD_CHECK(answers(&gpu, kThird, absl::StatusCode::kCancelled));
                   gpu.thread().ReleaseSlab(kSlab, {});
                   CHILD_CHECK(answers(&gpu, kSecond, absl::StatusCode::kOk));
                   gpu.thread().CreateSlab(kThird, kMost);
                   auto refused = gpu.Wait<DeviceSlabCreated>();
                   constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
                   CHILD_REFUSED(kExhausted, "`slab_setting`", refused.status);
                   CHILD_REFUSED(kExhausted, gpu.context()->uuid(), refused.status);
                   gpu.thread().CreateSlab(kThird, kMost);
                   CHILD_CHECK(gpu.thread().Stop());
                   CHILD_CHECK(answers(&gpu, kThird, absl::StatusCode::kAborted));
                 }) == "");
}

}  // namespace
}  // namespace ringd
