// A rank of a DeviceLane in a test's child: a room, a slab on a GPU of its own, and the lane.
#ifndef RINGD_TESTS_DAEMON_LANES_DEVICE_LANED_RANK_H_
#define RINGD_TESTS_DAEMON_LANES_DEVICE_LANED_RANK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/lanes/device/device_lane.h"
#include "daemon/lanes/device/device_room.h"
#include "tests/backends/device/tested_gpu.h"

namespace ringd {

// Thread safety: one thread, which is the lane's progress thread.
class LanedRank {
 public:
  static constexpr std::uint64_t kFusion = 32 << 10;

  // `keep`: DeviceRoom::Options'.
  LanedRank(const emulator::Child& child, const emulator::NcclRank& rank,
            std::chrono::nanoseconds keep = {})
      : child_(child),
        rank_(rank),
        context_(OpenGpu(child, rank.rank())),
        room_({.cuda_library = emulator::kLibrary,
               .nccl_library = emulator::kNcclLibrary,
               .fusion_bytes = kFusion,
               .keep = keep},
              [] {}) {
    room_.OpenSlab(context_->uuid(), kSlabBytes, {},
                   [this, &child](const absl::Status& status,
                                  std::shared_ptr<const SessionSlab> slab, UniqueFd descriptor) {
                     CHILD_STATUS(status);
                     slab_ = std::move(slab);
                     imported_.emplace(CHILD_VALUE(ImportedSlab::Import(
                         context_, std::move(descriptor), slab_->bytes(), slab_->uuid())));
                   });
    child.WaitUntil(
        [this] {
          room_.Advance();
          return slab_ != nullptr;
        },
        "the slab");
    OpenLane();
  }

  // Another one, of the same ranks, when EndLane was called.
  void OpenLane() {
    DeviceLane::Options options;
    for (int i = 0; i < rank_.size(); ++i) options.ranks.emplace_back(i);
    options.connect_patience = kPatience;
    options.tell_id = [](const NcclIdBytes&, bool) {};
    lane_.emplace(std::move(options), std::vector<DeviceLane::Member>{{rank_.rank(), slab_}},
                  &room_);
  }
  void EndLane() { lane_.reset(); }

  DeviceLane& lane() { return *lane_; }
  DeviceRoom& room() { return room_; }
  const SessionSlab& slab() const { return *slab_; }
  SlabView view() const { return {child_, *imported_}; }

  // One operation of such tensors, each at its place behind the timeline and in place. `number`
  // grows; the pair is the first one's.
  void Start(std::uint64_t number, const std::vector<TensorMeta>& metas,
             const std::vector<std::uint64_t>& places) {
    std::vector<const TensorMeta*> pointers;
    std::vector<DeviceOperand> operands;
    for (std::size_t i = 0; i < metas.size(); ++i) {
      pointers.push_back(&metas[i]);
      operands.push_back({kTimelineBytes + places[i], kTimelineBytes + places[i], 0, number});
    }
    lane_->Start(OperationId(number), pointers, operands, Clock::now());
  }
  // As the trainer's stream does it.
  void SetReady(std::uint64_t number) const { view().SetSlot(ReadySlot(0), number); }

  // What has ended since the last look; does not wait.
  std::vector<DeviceLane::End> Look() {
    room_.Advance();
    return lane_->TakeEnds();
  }
  // What has ended, when something has.
  std::vector<DeviceLane::End> WaitEnds() {
    std::vector<DeviceLane::End> ends;
    child_.WaitUntil(
        [&] {
          ends = Look();
          return !ends.empty();
        },
        "an operation's end");
    return ends;
  }
  void WaitUntil(const std::function<bool()>& holds, const char* what) {
    child_.WaitUntil(
        [&] {
          room_.Advance();
          return holds();
        },
        what);
  }

 private:
  const emulator::Child& child_;
  const emulator::NcclRank& rank_;
  const std::shared_ptr<const CudaContext> context_;
  DeviceRoom room_;
  std::shared_ptr<const SessionSlab> slab_;
  std::optional<ImportedSlab> imported_;
  std::optional<DeviceLane> lane_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_LANES_DEVICE_LANED_RANK_H_
