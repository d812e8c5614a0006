// The GPUs that an engine uses, each with its thread.
#ifndef RINGD_DAEMON_LANES_DEVICE_DEVICE_ROOM_H_
#define RINGD_DAEMON_LANES_DEVICE_DEVICE_ROOM_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/device/device_launcher.h"
#include "backends/device/device_thread.h"
#include "daemon/channel/channel_loop.h"
#include "daemon/lanes/device/device_asker.h"
#include "daemon/lanes/device/kept_communicators.h"
#include "daemon/lanes/device/session_slab.h"
#include "daemon/lanes/device/trainer_launcher.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"
#include "proto/types/ids.h"

namespace ringd {

// What is told of a communicator's GPUs.
class DeviceEvents {
 public:
  virtual ~DeviceEvents() = default;

  virtual void OnId(const NcclIdCreated& created) = 0;
  virtual void OnConnected(const DeviceCommunicatorConnected& connected) = 0;
  virtual void OnFailed(const DeviceCommunicatorFailed& failed) = 0;
  virtual void OnBucketAwaits(const DeviceBucketAwaits& told) = 0;
  virtual void OnBucketEnded(const DeviceBucketEnded& ended) = 0;
};

// Opens GPUs as ranks ask for them, and hands on what their launchers tell: threads of this engine,
// or trainers (LaunchChoice says which). A GPU stays open until the engine ends; the thread of one
// that could not be opened, or is not wanted, ends when all who have asked for it are answered, so
// that names of GPUs that are not there cost none. A trainer's launcher goes when its slab has.
//
// Thread safety: none; the progress thread owns it. `wake` is called on other threads.
// Ownership: of the launchers, together with the slabs. Whoever listens must outlive its entry.
class DeviceRoom {
 public:
  struct Options {
    std::string cuda_library;
    std::string nccl_library;
    std::uint64_t fusion_bytes = 0;  // of device memory, for each communicator's packing
    std::uint64_t max_slab = 0;      // what a slab may have for tensors; 0: what the GPU has
    LaunchChoice launch = LaunchChoice::kAuto;
    std::string nccl_interfaces{};  // for trainers' NCCL, with commas in between; empty: any
    // Of NCCL communicators, after a job that has failed; 0: they end with their job.
    std::chrono::nanoseconds keep{};
  };
  // Once: the slab and its descriptor, or why there is none.
  using SlabCallback =
      std::function<void(const absl::Status&, std::shared_ptr<const SessionSlab>, UniqueFd)>;

  // `wake`: Advance has something to do.
  DeviceRoom(Options options, std::function<void()> wake);
  // Ends the threads, within DeviceThread::kStopPatience each. A thread that is left in a call of
  // the driver's ends the process, since the libraries' exit handlers might wait for it.
  ~DeviceRoom();
  DeviceRoom(const DeviceRoom&) = delete;
  DeviceRoom& operator=(const DeviceRoom&) = delete;

  const Options& options() const noexcept { return options_; }

  // Opens the GPU if that has not been done, and makes a slab of `bytes` for tensors. `done` is
  // called by Advance, or at once with an error; or in its place the asker's go_by_host: where that
  // is asked for, or where without it the GPU can't be used for want of NCCL.
  //   kNotFound, kFailedPrecondition: the GPU, a library, or who is to launch can't.
  //   kResourceExhausted: memory, or more than max_slab.
  void OpenSlab(const std::string& uuid, std::uint64_t bytes, DeviceAsker asker, SlabCallback done);

  // Numbers for communicators and ids, of which `events` hears until Forget.
  DeviceCommunicatorId AddCommunicator(DeviceEvents* events);
  std::uint64_t AddIdRequest(DeviceEvents* events);
  // No communicator's or id's events any more.
  void Forget(DeviceEvents* events);

  // For the next job of the name. After one that all have left in order for kKeptInOrder at most:
  // its memory is another job's soon.
  void Keep(KeptCommunicator kept, bool in_order);
  static constexpr std::chrono::seconds kKeptInOrder{3};
  KeptCommunicators& kept() noexcept { return kept_; }
  // The one with this id. What is told of its ranks goes to `events` from now on.
  std::optional<KeptCommunicator> TakeKept(const NcclIdBytes& id, DeviceEvents* events);
  // These ranks meet anew; or no job comes.
  void DropKept(const std::vector<Rank>& ranks);
  void DropKept();
  // Call it now and then. `has_job`: else nobody is about to take what was announced.
  void DropExpired(Clock::time_point now, bool has_job);

  // True if other ranks may still need what NCCL does here for communicators that have ended, for
  // kPartingPatience at most, or if some are kept: so long the process must not end.
  bool Lingers(Clock::time_point now) const;

  // Why the engine has no use for its GPUs any more: a thread has been in one step for `patience`,
  // or for kSetUpPatience where that may take long. CUDA's driver, or NCCL, does not come back.
  // Empty: all is well.
  std::string DescribeHung(Clock::time_point now, Clock::duration patience) const;
  static constexpr std::chrono::seconds kSetUpPatience{60};
  // The same of trainers that launch; here only what is on theirs fails.
  void LookAtTrainers(Clock::time_point now, Clock::duration patience);

  // Hands on what the threads have told; returns how much that was.
  std::size_t Advance();

 private:
  struct Wake;
  struct Gpu {
    std::shared_ptr<DeviceLauncher> launcher;
    LaunchedBy launched_by = LaunchedBy::kEngine;
    int asked = 0;  // slabs that it has not answered yet
    bool has_failed = false;
    bool is_unwanted = false;  // it works, and trainers launch there
    std::optional<bool> is_under_mps;
    bool registers = false;  // memory with NCCL
  };
  // With what its launcher is.
  struct GpuHere : Gpu {
    std::string uuid;
    DeviceThread* thread = nullptr;
  };
  struct TrainersGpu : Gpu {
    TrainerLauncher* trainer = nullptr;
  };
  struct Asked {
    std::string uuid;
    std::uint64_t bytes = 0;
    DeviceAsker asker;
    bool may_pass_on = false;  // to the asker's process, if the engine can't share the GPU with it
    bool may_go_by_host = false;  // if there is no NCCL
    SlabCallback done;
  };

  // Why a slab can't be had by NCCL, or the host path in its place.
  void Refuse(const Asked& asked, const absl::Status& why);
  void OpenHere(Asked asked);
  void OpenAtTrainer(Asked asked);
  void DropUnused();
  void Handle(Gpu& gpu, DeviceEvent event);
  void NoteOpened(Gpu& gpu, const DeviceOpened& opened);
  void NoteSlab(Gpu& gpu, DeviceSlabCreated created);
  void NoteRegistered(const DeviceMemoryRegistered& told);
  void TellWhoLaunches(const std::string& uuid, const Gpu& gpu);
  DeviceEvents* ListenerOf(DeviceCommunicatorId communicator) const;

  const Options options_;
  const std::shared_ptr<Wake> wake_;
  std::map<std::string, GpuHere> gpus_;  // by UUID
  std::vector<GpuHere> parting_;  // their threads are stopping, and nobody waits for that yet
  // Trainers' by their slab, which is one for each.
  std::unique_ptr<ChannelLoop> trainers_loop_;  // null: there has been none
  std::map<DeviceSlabId, TrainersGpu> trainers_;
  std::map<DeviceSlabId, Asked> asked_;
  std::vector<Asked> passed_on_;  // to their trainers, by Advance
  std::map<DeviceCommunicatorId, DeviceEvents*> communicators_;
  std::map<std::uint64_t, DeviceEvents*> id_requests_;
  KeptCommunicators kept_;
  Clock::time_point last_forgotten_;  // some communicator
  std::uint64_t next_slab_ = 1;
  std::uint64_t next_communicator_ = 1;
  std::uint64_t next_id_request_ = 1;
  bool has_told_ = false;  // of a GPU without MPS
  bool has_told_unregistered_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_DEVICE_DEVICE_ROOM_H_
