#include "daemon/lanes/device/device_room.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

// What trainers say is bounded: a thread for each.
constexpr std::size_t kMostGpus = 64;
constexpr std::size_t kMostUuidBytes = 64;

constexpr char kSlabSetting[] = "slab_bytes of ringd_device_open";
constexpr char kFusionSetting[] = "fusion_threshold";

template <typename... Fs>
struct Visitor : Fs... {
  using Fs::operator()...;
};

}  // namespace

// Threads may outlive the room: by a slab that a session's end has not given back yet.
struct DeviceRoom::Wake {
  explicit Wake(std::function<void()> function) : call(std::move(function)) {}

  void Ring() ABSL_LOCKS_EXCLUDED(mutex) {
    stirred.store(true, std::memory_order_release);
    const MutexLock lock(mutex);
    if (call != nullptr) call();
  }

  // Something has been told since Advance looked. Set before `call`, which orders it.
  std::atomic<bool> stirred{false};
  Mutex mutex;
  std::function<void()> call ABSL_GUARDED_BY(mutex);
};

DeviceRoom::DeviceRoom(Options options, std::function<void()> wake)
    : options_(std::move(options)), wake_(std::make_shared<Wake>(std::move(wake))) {}

DeviceRoom::~DeviceRoom() {
  {
    const MutexLock lock(wake_->mutex);
    wake_->call = nullptr;
  }
  // Those go at once.
  for (const auto& [slab, gpu] : trainers_) gpu.launcher->Stop();
  for (auto& [uuid, gpu] : gpus_) parting_.push_back(std::move(gpu));
  for (const GpuHere& gpu : parting_) gpu.thread->BeginStop();
  for (const GpuHere& gpu : parting_) {
    if (gpu.thread->Stop()) continue;
    LogError(absl::StrCat("the thread of ", gpu.uuid, " is left in ", gpu.thread->activity().call,
                          ", and this engine ends without it"));
    ::_exit(EXIT_FAILURE);
  }
}

void DeviceRoom::OpenSlab(const std::string& uuid, std::uint64_t bytes, DeviceAsker asker,
                          SlabCallback done) {
  const auto refuse = [&done](const absl::Status& why) { done(why, nullptr, UniqueFd()); };
  if (options_.max_slab > 0 && bytes > options_.max_slab) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat("a slab of ", bytes, " bytes (slab_bytes of ringd_device_open) is more than ",
                     "max_slab of this ringd allows: ", options_.max_slab, " bytes")));
  }
  const auto has_ended = [](const GpuHere& gpu) { return gpu.thread->has_ended(); };
  std::erase_if(parting_, has_ended);
  const std::size_t threads = gpus_.size() + parting_.size();
  if (uuid.size() > kMostUuidBytes || (!gpus_.contains(uuid) && threads >= kMostGpus)) {
    return refuse(absl::NotFoundError("no node has so many GPUs, nor such names of them"));
  }
  if (options_.launch == LaunchChoice::kTrainer && !asker.can_launch) {
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        "device_launch = \"trainer\": libringd of ", asker.name, " is too old for that")));
  }
  if (options_.launch == LaunchChoice::kHost || asker.wants_host_path) {
    if (asker.go_by_host != nullptr) return asker.go_by_host("");
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        "device_launch = \"host\": libringd of ", asker.name, " is too old for that")));
  }
  // Whoever launches, an empty name says that this ringd shall use none.
  if (options_.cuda_library.empty()) {
    return refuse(absl::NotFoundError("cuda_library is not set: this ringd uses no GPU"));
  }
  const bool is_auto = options_.launch == LaunchChoice::kAuto;
  const bool may_pass_on = is_auto && asker.can_launch;
  const bool may_go_by_host = is_auto && asker.go_by_host != nullptr;
  Asked asked{uuid, bytes, std::move(asker), may_pass_on, may_go_by_host, std::move(done)};
  if (options_.nccl_library.empty()) {
    return Refuse(asked, absl::NotFoundError("nccl_library is not set: this ringd uses no NCCL"));
  }
  const bool here = options_.launch == LaunchChoice::kEngine || !asked.asker.can_launch ||
                    (is_auto && asked.asker.is_under_mps.value_or(false));
  return here ? OpenHere(std::move(asked)) : OpenAtTrainer(std::move(asked));
}

void DeviceRoom::Refuse(const Asked& asked, const absl::Status& why) {
  // The trainer has opened the GPU by CUDA itself: what is not there, or too old, is NCCL. If it is
  // not, the host path fails for the same reason.
  const bool lacks_nccl = absl::IsNotFound(why) || absl::IsFailedPrecondition(why);
  if (!asked.may_go_by_host || !lacks_nccl) return asked.done(why, nullptr, UniqueFd());
  LogWarning(absl::StrCat("GPU tensors of ", asked.asker.name,
                          " go through host memory, which is slow: ", why.message()));
  asked.asker.go_by_host(std::string(why.message()));
}

void DeviceRoom::OpenHere(Asked asked) {
  GpuHere& gpu = gpus_[asked.uuid];
  if (gpu.launcher == nullptr) {
    DeviceThreadOptions options;
    options.cuda_library = options_.cuda_library;
    options.nccl_library = options_.nccl_library;
    options.gpu = asked.uuid;
    options.slab_setting = kSlabSetting;
    options.fusion_setting = kFusionSetting;
    auto thread =
        std::make_shared<DeviceThread>(std::move(options), [wake = wake_] { wake->Ring(); });
    gpu.uuid = asked.uuid;
    gpu.thread = thread.get();
    gpu.launcher = std::move(thread);
  }
  const DeviceSlabId id(next_slab_++);
  const std::uint64_t bytes = asked.bytes;
  asked_.emplace(id, std::move(asked));
  ++gpu.asked;
  gpu.launcher->CreateSlab(id, bytes);
}

void DeviceRoom::OpenAtTrainer(Asked asked) {
  const auto start = [&]() -> absl::StatusOr<std::shared_ptr<TrainerLauncher>> {
    if (trainers_loop_ == nullptr) {
      absl::StatusOr<std::unique_ptr<ChannelLoop>> loop = ChannelLoop::Start("ringd-trainers");
      if (!loop.ok()) return loop.status();
      trainers_loop_ = *std::move(loop);
    }
    absl::StatusOr<std::pair<UniqueFd, UniqueFd>> ends = UnixSocketPair();
    if (!ends.ok()) return ends.status();
    auto launcher = TrainerLauncher::Start({.trainer = asked.asker.name,
                                            .gpu = asked.uuid,
                                            .nccl_library = options_.nccl_library,
                                            .nccl_interfaces = options_.nccl_interfaces,
                                            .slab_setting = kSlabSetting,
                                            .fusion_setting = kFusionSetting},
                                           std::move(ends->first), *trainers_loop_,
                                           [wake = wake_] { wake->Ring(); });
    if (launcher.ok()) asked.asker.hand_over(ends->second);
    return launcher;
  };
  absl::StatusOr<std::shared_ptr<TrainerLauncher>> launcher = start();
  if (!launcher.ok()) return asked.done(launcher.status(), nullptr, UniqueFd());
  const DeviceSlabId id(next_slab_++);
  TrainersGpu& gpu = trainers_[id];
  gpu.trainer = launcher->get();
  gpu.launcher = *std::move(launcher);
  gpu.launched_by = LaunchedBy::kTrainer;
  gpu.asked = 1;
  gpu.is_under_mps = asked.asker.is_under_mps;
  const std::uint64_t bytes = asked.bytes;
  asked_.emplace(id, std::move(asked));
  gpu.launcher->CreateSlab(id, bytes);
}

DeviceCommunicatorId DeviceRoom::AddCommunicator(DeviceEvents* events) {
  const DeviceCommunicatorId id(next_communicator_++);
  communicators_.emplace(id, events);
  return id;
}

std::uint64_t DeviceRoom::AddIdRequest(DeviceEvents* events) {
  id_requests_.emplace(next_id_request_, events);
  return next_id_request_++;
}

void DeviceRoom::Keep(KeptCommunicator kept, bool in_order) {
  const Clock::duration patience =
      in_order ? std::min<Clock::duration>(options_.keep, kKeptInOrder) : options_.keep;
  LogInfo(absl::StrCat("the GPUs' communicator of ", kept.ranks.size(), " ranks is kept for ",
                       std::chrono::ceil<std::chrono::seconds>(patience).count(),
                       " s, for the next job of the name"));
  last_forgotten_ = Clock::now();
  // If it fails it is the store's matter, though its lane may still be there.
  for (const KeptCommunicator::Local& here : kept.here) communicators_.erase(here.communicator);
  kept_.Add(std::move(kept), last_forgotten_ + patience);
}

std::optional<KeptCommunicator> DeviceRoom::TakeKept(const NcclIdBytes& id, DeviceEvents* events) {
  std::optional<KeptCommunicator> taken = kept_.Take(id);
  if (!taken.has_value()) return taken;
  for (const KeptCommunicator::Local& here : taken->here) {
    communicators_[here.communicator] = events;
  }
  return taken;
}

void DeviceRoom::DropKept(const std::vector<Rank>& ranks) {
  last_forgotten_ = Clock::now();
  kept_.Drop(ranks);
}

void DeviceRoom::DropKept() {
  last_forgotten_ = Clock::now();
  kept_.DropAll();
}

void DeviceRoom::DropExpired(Clock::time_point now, bool has_job) {
  if (kept_.empty()) return;
  if (!has_job) kept_.EndAnnounced(now + std::min<Clock::duration>(options_.keep, kKeptInOrder));
  last_forgotten_ = now;
  kept_.DropExpired(now);
}

bool DeviceRoom::Lingers(Clock::time_point now) const {
  if (!kept_.empty()) return true;
  if (now - last_forgotten_ >= kPartingPatience) return false;
  return std::any_of(gpus_.begin(), gpus_.end(),
                     [](const auto& entry) { return !entry.second.launcher->Describe().empty(); });
}

std::string DeviceRoom::DescribeHung(Clock::time_point now, Clock::duration patience) const {
  for (const auto& [uuid, gpu] : gpus_) {
    const DeviceThreadActivity activity = gpu.launcher->activity();
    const Clock::duration most =
        activity.sets_up ? std::max<Clock::duration>(patience, kSetUpPatience) : patience;
    if (activity.call.empty() || now - activity.since < most) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - activity.since);
    return absl::StrCat("CUDA's driver or NCCL has not come back for ", seconds.count(),
                        " s: ", uuid, ", ", activity.call);
  }
  return "";
}

void DeviceRoom::Forget(DeviceEvents* events) {
  last_forgotten_ = Clock::now();
  const auto is = [events](const auto& entry) { return entry.second == events; };
  std::erase_if(communicators_, is);
  std::erase_if(id_requests_, is);
}

DeviceEvents* DeviceRoom::ListenerOf(DeviceCommunicatorId communicator) const {
  const auto found = communicators_.find(communicator);
  return found == communicators_.end() ? nullptr : found->second;
}

std::size_t DeviceRoom::Advance() {
  if (!wake_->stirred.load(std::memory_order_acquire)) return 0;
  // What is told from here on is seen below or sets it again.
  wake_->stirred.exchange(false, std::memory_order_acquire);
  std::size_t handled = 0;
  for (auto& [uuid, gpu] : gpus_) {
    for (DeviceEvent& event : gpu.launcher->TakeEvents()) {
      Handle(gpu, std::move(event));
      ++handled;
    }
  }
  for (auto& [slab, gpu] : trainers_) {
    for (DeviceEvent& event : gpu.launcher->TakeEvents()) {
      Handle(gpu, std::move(event));
      ++handled;
    }
  }
  DropUnused();
  for (Asked& asked : std::exchange(passed_on_, {})) OpenAtTrainer(std::move(asked));
  return handled;
}

void DeviceRoom::DropUnused() {
  for (auto at = gpus_.begin(); at != gpus_.end();) {
    GpuHere& gpu = at->second;
    // Some rank may have its slab there all the same.
    const bool is_used = gpu.asked > 0 || gpu.launcher.use_count() > 1;
    if (is_used || (!gpu.has_failed && !gpu.is_unwanted)) {
      ++at;
      continue;
    }
    gpu.thread->BeginStop();
    parting_.push_back(std::move(gpu));
    at = gpus_.erase(at);
  }
}

void DeviceRoom::LookAtTrainers(Clock::time_point now, Clock::duration patience) {
  for (const auto& [slab, gpu] : trainers_) {
    gpu.trainer->Look(now, patience, kSetUpPatience);
  }
  // The session has gone, and all lanes: nobody asks it for anything any more.
  std::erase_if(trainers_, [](const auto& entry) {
    return entry.second.asked == 0 && entry.second.launcher.use_count() == 1;
  });
}

void DeviceRoom::NoteOpened(Gpu& gpu, const DeviceOpened& opened) {
  gpu.has_failed = !opened.status.ok();
  gpu.is_under_mps = opened.is_under_mps;
  gpu.registers = opened.registers;
  if (gpu.has_failed) LogWarning(opened.status.message());
}

void DeviceRoom::NoteRegistered(const DeviceMemoryRegistered& told) {
  if (told.bytes > 0 || std::exchange(has_told_unregistered_, true)) return;
  LogInfo(absl::StrCat("no device memory is registered with NCCL, which copies what it reduces ",
                       "through buffers of its own: ", told.why_not));
}

void DeviceRoom::TellWhoLaunches(const std::string& uuid, const Gpu& gpu) {
  if (gpu.is_under_mps.value_or(true) || std::exchange(has_told_, true)) return;
  if (gpu.launched_by == LaunchedBy::kTrainer) {
    return LogInfo(absl::StrCat(uuid, " is used without MPS: trainers launch"));
  }
  LogWarning(absl::StrCat(uuid,
                          " is used without MPS: this job's trainers and its engine have the GPU "
                          "in turns, each for a time slice, which slows all of them down. Start "
                          "ringd-mps.service, and trainers with CUDA_MPS_PIPE_DIRECTORY as it has, "
                          "or let trainers launch (device_launch)"));
}

void DeviceRoom::NoteSlab(Gpu& gpu, DeviceSlabCreated created) {
  const auto found = asked_.find(created.slab);
  if (found == asked_.end()) return;
  Asked asked = std::move(found->second);
  asked_.erase(found);
  --gpu.asked;
  std::shared_ptr<const SessionSlab> slab;
  if (created.status.ok()) {
    slab =
        std::make_shared<const SessionSlab>(gpu.launcher, created.slab, created.bytes, created.gpu,
                                            gpu.is_under_mps, gpu.launched_by, gpu.registers);
  }
  // Not shared with the trainer after all: one of them is under no MPS, or under another one.
  const bool is_shared = !gpu.has_failed && gpu.is_under_mps.value_or(false);
  if (asked.may_pass_on && gpu.launched_by == LaunchedBy::kEngine && !is_shared) {
    LogInfo(absl::StrCat(
        asked.uuid, " is not under an MPS of engine and trainer: ", asked.asker.name, " launches"));
    asked.may_pass_on = false;
    gpu.is_unwanted = true;
    passed_on_.push_back(std::move(asked));
    return;
  }
  if (slab == nullptr) return Refuse(asked, created.status);
  TellWhoLaunches(asked.uuid, gpu);
  asked.done(created.status, std::move(slab), std::move(created.descriptor));
}

void DeviceRoom::Handle(Gpu& gpu, DeviceEvent event) {
  std::visit(Visitor{
                 [&](const DeviceOpened& opened) { NoteOpened(gpu, opened); },
                 [&](DeviceSlabCreated& created) { NoteSlab(gpu, std::move(created)); },
                 [](const DeviceSlabReleased&) {},
                 [&](const NcclIdCreated& created) {
                   const auto found = id_requests_.find(created.request);
                   if (found == id_requests_.end()) return;
                   DeviceEvents* const events = found->second;
                   id_requests_.erase(found);
                   events->OnId(created);
                 },
                 [&](const DeviceCommunicatorConnected& connected) {
                   if (DeviceEvents* const events = ListenerOf(connected.communicator)) {
                     events->OnConnected(connected);
                   }
                 },
                 [&](const DeviceMemoryRegistered& told) { NoteRegistered(told); },
                 [&](const DeviceCommunicatorFailed& failed) {
                   if (DeviceEvents* const events = ListenerOf(failed.communicator)) {
                     events->OnFailed(failed);
                   } else {
                     kept_.OnFailed(failed.communicator);
                   }
                 },
                 [&](const DeviceBucketAwaits& told) {
                   if (DeviceEvents* const events = ListenerOf(told.communicator)) {
                     events->OnBucketAwaits(told);
                   }
                 },
                 [&](const DeviceBucketEnded& ended) {
                   if (DeviceEvents* const events = ListenerOf(ended.communicator)) {
                     events->OnBucketEnded(ended);
                   }
                 },
                 [](const DeviceLost& lost) {
                   LogError(absl::StrCat("a GPU is lost: ", lost.status.message()));
                 },
             },
             event);
}

}  // namespace ringd
