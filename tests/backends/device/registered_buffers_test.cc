#include "backends/device/registered_buffers.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/backends/device/tested_gpu.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::NcclRank;
using emulator::RunRanks;
using std::chrono::milliseconds;

constexpr std::uint64_t kGranule = 2 << 20;

// Two tensors in `slab`: in one piece on rank 0, which sends them from there, and not on others,
// which pack them.
DeviceBucket Pair(int rank, std::uint64_t value, DeviceSlabId slab = kSlab) {
  const std::uint64_t second = rank == 0 ? 8 : 4096;
  DeviceBucket bucket = BucketOf({TensorAt(0, 0, 2), TensorAt(second, second, 1)}, value);
  for (DeviceTensor& tensor : bucket.tensors) tensor.slab = slab;
  return bucket;
}

absl::Status Run(TestedGpu& gpu, const SlabView& view, const DeviceBucket& bucket) {
  view.SetSlot(ReadySlot(0), bucket.id);
  gpu.thread().Enqueue(bucket);
  return gpu.Wait<DeviceBucketEnded>().status;
}

NcclDescription Described(TestedGpu& gpu) { return gpu.thread().Describe().at(0).second; }

TEST_CASE("RegisteredBuffers: slab and fusion buffer are, wherever the ranks' tensors lie") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          const ImportedSlab slab = gpu.NewSlab();
          const SlabView view(child, slab);
          gpu.Connect(IdOf(rank), rank.rank(), 2);
          CHILD_CHECK(Described(gpu).registered_bytes == 0);
          view.Write<float>(0, {1, 2});
          view.Write<float>(rank.rank() == 0 ? 8 : 4096, {3});
          CHILD_STATUS(Run(gpu, view, Pair(rank.rank(), 1)));
          CHILD_CHECK(view.Read<float>(0, 2) == std::vector<float>({2, 4}));
          CHILD_CHECK(view.Read<float>(rank.rank() == 0 ? 8 : 4096, 1)[0] == 6);
          const auto told = gpu.Wait<DeviceMemoryRegistered>();
          CHILD_CHECK(told.communicator == kWorld);
          CHILD_CHECK(told.bytes == slab.bytes() + kGranule);
          CHILD_CHECK(told.why_not.empty());
          for (std::uint64_t value = 2; value <= 5; ++value) {
            CHILD_STATUS(Run(gpu, view, Pair(rank.rank(), value)));
          }
          CHILD_CHECK(Described(gpu).registered_bytes == told.bytes);
          DeviceMemoryRegistered again;
          CHILD_CHECK(!gpu.Take(&again));
        }) == "");
}

TEST_CASE("RegisteredBuffers: if one rank can't register, no rank does, and buckets go on") {
  // 0 on rank 0.
  CHECK(RunRanks(2, With({{"NCCL_LOCAL_REGISTER", "%r"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   const SlabView view(child, slab);
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   for (std::uint64_t value = 1; value <= 3; ++value) {
                     view.Write<float>(0, {1, 2});
                     CHILD_STATUS(Run(gpu, view, Pair(rank.rank(), value)));
                     CHILD_CHECK(view.Read<float>(0, 2) == std::vector<float>({2, 4}));
                   }
                   const auto told = gpu.Wait<DeviceMemoryRegistered>();
                   CHILD_CHECK(told.bytes == 0);
                   const std::string expected =
                       rank.rank() == 0 ? "NCCL_LOCAL_REGISTER" : "another rank";
                   CHILD_CHECK(told.why_not.find(expected) != std::string::npos);
                   CHILD_CHECK(Described(gpu).registered_bytes == 0);
                   CHILD_CHECK(Described(gpu).not_registered == told.why_not);
                 }) == "");
}

TEST_CASE("RegisteredBuffers: a slab that goes is deregistered, and a new one registered") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          constexpr DeviceSlabId kOther{8};
          std::optional<ImportedSlab> slab(gpu.NewSlab());
          const ImportedSlab other = gpu.NewSlab(kOther);
          gpu.Connect(IdOf(rank), rank.rank(), 2);
          CHILD_STATUS(Run(gpu, SlabView(child, *slab), Pair(rank.rank(), 1)));
          const std::uint64_t bytes = slab->bytes() + kGranule;
          CHILD_CHECK(Described(gpu).registered_bytes == bytes);
          gpu.thread().ReleaseSlab(kSlab, {});
          CHILD_CHECK(gpu.Wait<DeviceSlabReleased>().slab == kSlab);
          DeviceBucket bucket = Pair(rank.rank(), 2, kOther);
          bucket.ready[0].slab = bucket.done[0].slab = kOther;
          CHILD_STATUS(Run(gpu, SlabView(child, other), bucket));
          CHILD_CHECK(Described(gpu).registered_bytes == bytes);
          gpu.thread().Disconnect(kWorld, Clock::now() + kPatience);
          child.WaitUntil([&] { return gpu.thread().Describe().empty(); }, "its end");
          gpu.thread().ReleaseSlab(kOther, {});
          CHILD_CHECK(gpu.Wait<DeviceSlabReleased>().slab == kOther);
        }) == "");
}

TEST_CASE("RegisteredBuffers: a later slab that can't be registered fails the communicator") {
  CHECK(RunRanks(2, With(), [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          constexpr DeviceSlabId kOther{8};
          const ImportedSlab slab = gpu.NewSlab();
          const SlabView view(child, slab);
          const ImportedSlab other = gpu.NewSlab(kOther);
          gpu.Connect(IdOf(rank), rank.rank(), 2);
          CHILD_STATUS(Run(gpu, view, Pair(rank.rank(), 1)));
          ::setenv("NCCL_LOCAL_REGISTER", "0", 1);
          CHILD_REFUSED(absl::StatusCode::kFailedPrecondition, "slab 8 can't be registered",
                        Run(gpu, view, Pair(rank.rank(), 2, kOther)));
          CHILD_REFUSED(absl::StatusCode::kFailedPrecondition, "slab 8",
                        gpu.Wait<DeviceCommunicatorFailed>().status);
          for (const DeviceSlabId one : {kSlab, kOther}) {
            gpu.thread().ReleaseSlab(one, {});
            CHILD_CHECK(gpu.Wait<DeviceSlabReleased>().slab == one);
          }
        }) == "");
}

TEST_CASE(
    "RegisteredBuffers: ranks that do not agree in time end with the first bucket's deadline") {
  CHECK(RunRanks(2, With({{"RINGD_EMULATOR_NCCL_FAULTS", "hang@1:1"}}),
                 [](const Child& child, const NcclRank& rank) {
                   TestedGpu gpu(child, rank.rank());
                   const ImportedSlab slab = gpu.NewSlab();
                   SlabView(child, slab).SetSlot(ReadySlot(0), 100);
                   gpu.Connect(IdOf(rank), rank.rank(), 2);
                   DeviceBucket bucket = Pair(rank.rank(), 1);
                   bucket.deadline = Clock::now() + milliseconds(300);
                   gpu.thread().Enqueue(bucket);
                   CHILD_REFUSED(absl::StatusCode::kDeadlineExceeded, "have not agreed",
                                 gpu.Wait<DeviceBucketEnded>().status);
                   gpu.thread().ReleaseSlab(kSlab, {});
                   CHILD_CHECK(gpu.Wait<DeviceSlabReleased>().slab == kSlab);
                 }) == "");
}

TEST_CASE("RegisteredBuffers: without a slab to register, and alone, no rank waits for another") {
  CHECK(RunRanks(1, With(), [](const Child& child, const NcclRank& rank) {
          TestedGpu gpu(child, rank.rank());
          const ImportedSlab slab = gpu.NewSlab();
          const SlabView view(child, slab);
          constexpr DeviceCommunicatorId kPlain{5};
          gpu.Connect(IdOf(rank), 0, 1);
          gpu.thread().CreateId(0);
          gpu.thread().Connect(kPlain, gpu.Wait<NcclIdCreated>().id, 0, 1, kFusionBytes,
                               std::nullopt, Clock::now() + kPatience);
          CHILD_STATUS(gpu.Wait<DeviceCommunicatorConnected>().status);
          DeviceBucket plain = Pair(1, 1);
          plain.communicator = kPlain;
          CHILD_STATUS(Run(gpu, view, plain));
          DeviceMemoryRegistered told;
          CHILD_CHECK(!gpu.Take(&told));
          CHILD_STATUS(Run(gpu, view, Pair(1, 2)));
          CHILD_CHECK(gpu.Wait<DeviceMemoryRegistered>().communicator == kWorld);
          for (const auto& [id, described] : gpu.thread().Describe()) {
            CHILD_CHECK((described.registered_bytes > 0) == (id == kWorld));
          }
        }) == "");
}

}  // namespace
}  // namespace ringd
