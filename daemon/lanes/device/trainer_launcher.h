// A GPU on which a trainer's own process launches what this engine schedules.
#ifndef RINGD_DAEMON_LANES_DEVICE_TRAINER_LAUNCHER_H_
#define RINGD_DAEMON_LANES_DEVICE_TRAINER_LAUNCHER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/device/device_launcher.h"
#include "daemon/channel/channel_loop.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rpc/device_launch.pb.h"

namespace ringd {

// Hands each call to libringd in the trainer, whose DeviceThread does it, and takes what that one
// tells. One slab, that trainer's.
//
// What comes from the trainer is input: an event that answers nothing is ignored, and too many of
// them, or bytes that are no event, end it. An answer may not come at all: then Look ends what has
// waited too long. So a trainer that lies, or says nothing, harms its own job only.
//
// It is *lost* with the first of: the trainer has closed its end or gone, breaks the protocol,
// reads nothing, or does not come back from its driver. All that is in flight ends with that, and
// all that is asked for later.
//
// Thread safety: as DeviceLauncher; `wake` is called on any thread.
// Ownership: of its end of the channel, with the loop that reads it.
class TrainerLauncher final : public DeviceLauncher {
 public:
  struct Options {
    std::string trainer;  // "rank 1 (pid 4711)", for messages
    std::string gpu;      // UUID
    std::string nccl_library;
    std::string nccl_interfaces;  // with commas in between
    std::string slab_setting;     // as for DeviceThreadOptions
    std::string fusion_setting;
  };

  // `socket` is this engine's end, and `loop` outlives the launcher.
  //   What the kernel says.
  static absl::StatusOr<std::shared_ptr<TrainerLauncher>> Start(Options options, UniqueFd socket,
                                                                ChannelLoop& loop,
                                                                std::function<void()> wake);
  ~TrainerLauncher() override;
  TrainerLauncher(const TrainerLauncher&) = delete;
  TrainerLauncher& operator=(const TrainerLauncher&) = delete;

  std::vector<DeviceEvent> TakeEvents() override;
  void CreateSlab(DeviceSlabId slab, std::size_t bytes) override;
  void ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots) override;
  void ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots) override;
  void CreateId(std::uint64_t request) override;
  void Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank, int size,
               std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
               Clock::time_point deadline) override;
  void Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline) override;
  void Abort(DeviceCommunicatorId communicator, absl::string_view reason) override;
  void Enqueue(DeviceBucket bucket) override;
  // Lets the trainer go, at once. What it launched it ends by itself.
  using DeviceLauncher::Stop;
  bool Stop(std::chrono::milliseconds patience) override;
  // As the trainer has told it of late.
  DeviceThreadActivity activity() const override;
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const override;

  // Ends what the trainer should have ended, or is stuck with: its thread has been in one step for
  // `patience`, or `set_up_patience` where that may take long. Call it every now and then.
  void Look(Clock::time_point now, Clock::duration patience, Clock::duration set_up_patience);

  // How long a trainer may take for an answer beyond the deadline that it was told, and for an
  // abort.
  static constexpr std::chrono::seconds kGrace{3};
  // Answers to questions that nobody has asked, or not any more.
  static constexpr std::size_t kMostIgnored = 10'000;

 private:
  struct Communicator {
    NcclDescription description;
    bool is_connected = false;
    bool awaits_registered = false;
    Clock::time_point deadline;  // of Connect
  };
  // Each communicator's owner numbers its own buckets.
  using BucketKey = std::pair<DeviceCommunicatorId, std::uint64_t>;
  struct InFlight {
    Clock::time_point deadline;  // with kGrace
    int awaits_told = 0;         // how often DeviceBucketAwaits was
  };
  // What the loop's callbacks know; the launcher may go before them.
  struct Link;

  TrainerLauncher(Options options, std::function<void()> wake);

  void Send(const v1::LaunchCommand& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(const std::string& frame) ABSL_LOCKS_EXCLUDED(mutex_);
  void Hear(DeviceEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceOpened& opened) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceSlabCreated& created) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(NcclIdCreated& created) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceCommunicatorConnected& connected) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceMemoryRegistered& told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceCommunicatorFailed& failed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceBucketAwaits& told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HearOf(DeviceBucketEnded& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Hear(const v1::LaunchStep& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ignore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Emit(DeviceEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `is_certain`: nobody has a better word for it.
  void Lose(const absl::Status& why, bool is_certain) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Wrong(absl::string_view what) const;
  DeviceThreadActivity ActivityLocked(Clock::time_point now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const std::function<void()> wake_;
  std::shared_ptr<Link> link_;

  mutable Mutex mutex_;
  std::shared_ptr<Channel> channel_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool awaits_opened_ ABSL_GUARDED_BY(mutex_) = true;
  std::optional<DeviceSlabId> awaits_slab_ ABSL_GUARDED_BY(mutex_);
  std::size_t asked_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of that slab
  Clock::time_point slab_asked_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, Clock::time_point> awaits_ids_ ABSL_GUARDED_BY(mutex_);  // since when
  std::map<DeviceCommunicatorId, Communicator> communicators_ ABSL_GUARDED_BY(mutex_);
  std::map<BucketKey, InFlight> buckets_ ABSL_GUARDED_BY(mutex_);
  std::string nccl_version_ ABSL_GUARDED_BY(mutex_);
  DeviceThreadActivity step_ ABSL_GUARDED_BY(mutex_);  // as told last
  Clock::time_point step_told_ ABSL_GUARDED_BY(mutex_);
  std::size_t ignored_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_DEVICE_TRAINER_LAUNCHER_H_
