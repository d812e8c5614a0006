// Launches on this process's GPU what the job's engine schedules: where the two can't use it at the
// same time.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCH_SERVANT_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCH_SERVANT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "backends/cuda/cuda_context.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_thread.h"
#include "client/core/attach/fork_guard.h"
#include "client/core/lanes/device/exit_order.h"
#include "client/core/lanes/device/launched_values.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/channel/channel.h"
#include "proto/rpc/device_launch.pb.h"

namespace ringd::client {

// Runs the thread "ringd-launch", which hands the engine's commands to a DeviceThread and its
// events back. Calls of CUDA and NCCL are that one's, in the GPU's primary context, where the
// trainer's own streams and memory are.
//
// If the engine goes, or ends the channel, NCCL's communicators are aborted at once. The slab stays
// until Stop, since streams of the trainer's use it; so does what ReleaseSlab asks for.
//
// A process that exits without Stop does it in an exit handler, before those of the libraries. If
// the GPU's thread does not come back from a call then, the process ends there, by _exit with its
// own exit code: the libraries' handlers might wait for the same thing.
//
// Thread safety: any thread may call anything. A forked child must not use it, nor destroy it.
class LaunchServant final : private EndsBeforeLibraries {
 public:
  struct Options {
    std::string cuda_library;  // this process's
    std::string nccl_library;  // RINGD_NCCL_LIBRARY; empty: as ringd says
    std::string gpu;           // the UUID of the one that this process has opened
  };
  struct Slab {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;  // with the timeline
  };

  explicit LaunchServant(Options options);
  ~LaunchServant();
  LaunchServant(const LaunchServant&) = delete;
  LaunchServant& operator=(const LaunchServant&) = delete;

  // The engine's channel: starts the thread. Once; another socket is closed.
  //   kResourceExhausted: there is no thread to give. The engine sees that.
  absl::Status Begin(UniqueFd socket) ABSL_LOCKS_EXCLUDED(mutex_);

  // What the engine had made; nothing: not yet.
  std::optional<Slab> slab() const ABSL_LOCKS_EXCLUDED(mutex_);
  LaunchedValues& launched() const noexcept { return *launched_; }

  // Communicators that are connected end in peace, or are aborted after kPartingPatience; then the
  // slab goes. `hurries`: none in which something is in flight is waited for, and the slab stays
  // until the process has ended, since streams may be about to use it. Idempotent.
  // False: the GPU's thread is left in a call.
  bool Stop(bool hurries = false) ABSL_LOCKS_EXCLUDED(stop_mutex_, mutex_);

  // What other ranks may still need of this one's NCCL.
  static constexpr std::chrono::seconds kPartingPatience{2};

 private:
  // Wraps calls of the DeviceThread: what they mean here.
  class Commands;

  void EndBeforeLibraries() override { Stop(/*hurries=*/true); }
  bool has_to_hurry() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Run();
  // False: there is nothing more to be done.
  bool Turn();
  void ReadCommands();
  void Handle(const std::string& frame);
  void Open(const v1::LaunchOpen& open);
  void TellEvents();
  void TellStep(Clock::time_point now);
  void Tell(const v1::LaunchEvent& event);
  void HangUp(const char* why);
  void BeginParting(Clock::time_point now);

  const Options options_;
  const std::shared_ptr<LaunchedValues> launched_ = std::make_shared<LaunchedValues>();
  Mutex stop_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
  bool has_begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_left_ ABSL_GUARDED_BY(mutex_) = false;  // the GPU's thread, in a call
  bool hurries_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Slab> slab_ ABSL_GUARDED_BY(mutex_);
  UniqueFd stop_;  // an eventfd
  std::unique_ptr<ForkGuard> fork_guard_;

  // The thread's.
  std::unique_ptr<Channel> channel_;
  bool channel_ended_ = false;
  bool is_refused_ = false;  // the engine has been told why nothing is launched here
  std::unique_ptr<DeviceThread> gpu_;
  std::unique_ptr<Commands> commands_;
  std::optional<DeviceSlabId> slab_id_;
  std::set<DeviceCommunicatorId> communicators_;  // not left, nor aborted
  // In flight.
  std::set<std::pair<DeviceCommunicatorId, std::uint64_t>> buckets_;
  bool hears_awaits_ = false;  // the engine
  std::optional<Clock::time_point> parts_until_;
  bool has_told_step_ = false;
  Clock::time_point seen_since_;  // of the step at the last look
  Clock::time_point next_step_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCH_SERVANT_H_
