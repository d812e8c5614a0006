// A trainer's servant with an engine's launcher at the other end of its channel, in one process: on
// emulated GPUs.
#include "client/core/lanes/device/launch_servant.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/lanes/device/trainer_launcher.h"
#include "proto/base/unix_socket.h"
#include "tests/backends/device/tested_gpu.h"

namespace ringd::client {
namespace {

using emulator::Child;
using emulator::Environment;
using emulator::NcclRank;
using emulator::RunRanks;

const Environment kSettings = {{"RINGD_EMULATOR_CUDA_KERNELS", kMoveKernels},
                               {"RINGD_EMULATOR_NCCL_MAX_DELAY_US", "200"}};

// Thread safety: one thread.
class ServedGpu {
 public:
  ServedGpu(const Child& child, const NcclRank& rank)
      : child_(child),
        context_(OpenGpu(child, rank.rank())),
        servant_({emulator::kLibrary, "", context_->uuid()}) {
    auto ends = CHILD_VALUE(UnixSocketPair());
    CHILD_STATUS(servant_.Begin(std::move(ends.second)));
    loop_ = CHILD_VALUE(ChannelLoop::Start("trainers"));
    launcher_ = CHILD_VALUE(TrainerLauncher::Start({.trainer = "this one",
                                                    .gpu = context_->uuid(),
                                                    .nccl_library = emulator::kNcclLibrary,
                                                    .nccl_interfaces = "",
                                                    .slab_setting = "slab",
                                                    .fusion_setting = "fusion"},
                                                   std::move(ends.first), *loop_, [] {}));
    launcher_->CreateSlab(kSlab, kSlabBytes);
    CHILD_STATUS(Wait<DeviceSlabCreated>().status);
    const std::optional<LaunchServant::Slab> slab = servant_.slab();
    CHILD_CHECK(slab.has_value());
    bytes_ = static_cast<char*>(child.emulator().alias(slab->address, slab->bytes));
    launcher_->Connect(kWorld, IdOf(rank), rank.rank(), rank.size(), kFusionBytes, kSlab,
                       Clock::now() + kPatience);
    CHILD_STATUS(Wait<DeviceCommunicatorConnected>().status);
  }

  TrainerLauncher& launcher() { return *launcher_; }
  LaunchServant& servant() { return servant_; }

  template <typename Event>
  Event Wait() {
    std::optional<Event> found;
    child_.WaitUntil(
        [&] {
          for (DeviceEvent& one : launcher_->TakeEvents()) events_.push_back(std::move(one));
          for (auto at = events_.begin(); at != events_.end() && !found.has_value(); ++at) {
            if (!std::holds_alternative<Event>(*at)) continue;
            found = std::get<Event>(std::move(*at));
            events_.erase(at);
            break;
          }
          return found.has_value();
        },
        typeid(Event).name());
    return *std::move(found);
  }

  std::uint64_t Slot(std::uint32_t slot) const {
    return __atomic_load_n(AddressOf(slot), __ATOMIC_ACQUIRE);
  }
  void SetSlot(std::uint32_t slot, std::uint64_t value) const {
    __atomic_store_n(AddressOf(slot), value, __ATOMIC_RELEASE);
  }

 private:
  std::uint64_t* AddressOf(std::uint32_t slot) const {
    return reinterpret_cast<std::uint64_t*>(bytes_ + slot * kTimelineSlotBytes);
  }

  const Child& child_;
  std::shared_ptr<const CudaContext> context_;
  LaunchServant servant_;
  std::unique_ptr<ChannelLoop> loop_;
  std::shared_ptr<TrainerLauncher> launcher_;
  std::vector<DeviceEvent> events_;
  char* bytes_ = nullptr;
};

}  // namespace

TEST_CASE("LaunchServant: a packed bucket that has come before costs what it does in an engine") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          ServedGpu gpu(child, rank);
          // What they are for a DeviceThread: device_steady_state_test.
          const std::map<std::string, std::uint64_t> expected = {
              {"cuLaunchKernel", 2},     {"cuStreamWaitValue64", 1}, {"cuStreamWriteValue64", 1},
              {"cuStreamBatchMemOp", 0}, {"cuMemcpyHtoDAsync", 0},   {"cuMemcpyDtoDAsync", 0},
              {"synchronising", 0},      {"allocating", 0}};
          constexpr std::uint64_t kBuckets = 20;
          CHILD_CHECK(gpu.launcher().Describe().at(0).second.registered_bytes == 0);
          std::map<std::string, std::uint64_t> before;
          std::uint64_t value = 0;
          for (const bool is_counted : {false, true}) {
            if (is_counted) {
              for (const auto& [name, count] : expected) {
                before[name] = child.emulator().calls(name.c_str());
              }
            }
            for (std::uint64_t i = 0; i < kBuckets; ++i) {
              gpu.launcher().Enqueue(
                  BucketOf({TensorAt(0, 0, 100), TensorAt(8192, 8192, 3)}, ++value));
              gpu.SetSlot(ReadySlot(0), value);
              CHILD_STATUS(gpu.Wait<DeviceBucketEnded>().status);
            }
          }
          // Memory is registered here, too, and the engine hears of it.
          const auto told = gpu.Wait<DeviceMemoryRegistered>();
          CHILD_CHECK(told.bytes > kSlabBytes + kFusionBytes);
          CHILD_CHECK(gpu.launcher().Describe().at(0).second.registered_bytes == told.bytes);
          for (const auto& [name, count] : expected) {
            const std::uint64_t calls = child.emulator().calls(name.c_str()) - before[name];
            child.Check(calls == count * kBuckets, (name + ": " + std::to_string(calls)).c_str(),
                        __FILE__, __LINE__);
          }
        }) == "");
}

TEST_CASE("LaunchServant: an engine's end lets streams go within a second, and leaves the slab") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          ServedGpu gpu(child, rank);
          if (rank.rank() == 0) {
            // The other rank never comes.
            gpu.launcher().Enqueue(BucketOf({TensorAt(0, 0, 100)}, 1));
            gpu.SetSlot(ReadySlot(0), 1);
          }
          const Clock::time_point begin = Clock::now();
          gpu.launcher().Stop();
          if (rank.rank() == 0) {
            CHILD_CHECK(!gpu.Wait<DeviceBucketEnded>().status.ok());
            child.WaitUntil([&] { return gpu.Slot(DoneSlot(0)) == kTimelineReleased; }, "release");
            CHILD_CHECK(Clock::now() - begin < std::chrono::seconds(10));
          }
          CHILD_CHECK(gpu.servant().slab().has_value());
          CHILD_CHECK(gpu.servant().Stop());
          CHILD_CHECK(!gpu.servant().slab().has_value());
        }) == "");
}

TEST_CASE("LaunchServant: a slab that the engine gives back stays until the trainer has done") {
  CHECK(RunRanks(2, kSettings, [](const Child& child, const NcclRank& rank) {
          ServedGpu gpu(child, rank);
          const std::uint32_t slot = DoneSlot(3);
          gpu.launcher().ReleaseSlab(kSlab, {&slot, 1});
          child.WaitUntil([&] { return gpu.Slot(slot) == kTimelineReleased; }, "release");
          // Another one is refused: a trainer has one.
          gpu.launcher().CreateSlab(DeviceSlabId(8), kSlabBytes);
          CHILD_CHECK(absl::IsAlreadyExists(gpu.Wait<DeviceSlabCreated>().status));
          gpu.launcher().Enqueue(BucketOf({TensorAt(0, 0, 100)}, 1));
          gpu.SetSlot(ReadySlot(0), 1);
          CHILD_STATUS(gpu.Wait<DeviceBucketEnded>().status);
          CHILD_CHECK(gpu.servant().Stop());
        }) == "");
}

}  // namespace ringd::client
