#include "daemon/device/device_room.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "proto/base/mutex.h"

namespace ringd {
namespace {

// What trainers say is bounded: a thread for each.
constexpr std::size_t kMostGpus = 64;
constexpr std::size_t kMostUuidBytes = 64;

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
  for (const auto& [uuid, gpu] : gpus_) {
    if (gpu.thread->Stop()) continue;
    LogError(absl::StrCat("the thread of ", uuid, " is left in ", gpu.thread->activity().call,
                          ", and this engine ends without it"));
    ::_exit(EXIT_FAILURE);
  }
}

void DeviceRoom::OpenSlab(const std::string& uuid, std::uint64_t bytes, SlabCallback done) {
  if (options_.cuda_library.empty() || options_.nccl_library.empty()) {
    return done(absl::NotFoundError(
                    absl::StrCat(options_.cuda_library.empty() ? "cuda_library" : "nccl_library",
                                 " is not set: this ringd uses no GPU")),
                nullptr, UniqueFd());
  }
  if (options_.max_slab > 0 && bytes > options_.max_slab) {
    return done(absl::ResourceExhaustedError(absl::StrCat(
                    "a slab of ", bytes, " bytes (slab_bytes of ringd_device_open) is more than ",
                    "max_slab of this ringd allows: ", options_.max_slab, " bytes")),
                nullptr, UniqueFd());
  }
  if (uuid.size() > kMostUuidBytes || (!gpus_.contains(uuid) && gpus_.size() == kMostGpus)) {
    return done(absl::NotFoundError("no node has so many GPUs, nor such names of them"), nullptr,
                UniqueFd());
  }
  Gpu& gpu = gpus_[uuid];
  if (gpu.thread == nullptr) {
    DeviceThreadOptions options;
    options.cuda_library = options_.cuda_library;
    options.nccl_library = options_.nccl_library;
    options.gpu = uuid;
    options.slab_setting = "slab_bytes of ringd_device_open";
    options.fusion_setting = "fusion_threshold";
    gpu.thread =
        std::make_shared<DeviceThread>(std::move(options), [wake = wake_] { wake->Ring(); });
  }
  const DeviceSlabId id(next_slab_++);
  asked_.emplace(id, std::move(done));
  ++gpu.asked;
  gpu.thread->CreateSlab(id, bytes);
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

bool DeviceRoom::Lingers(Clock::time_point now) const {
  if (now - last_forgotten_ >= kPartingPatience) return false;
  return std::any_of(gpus_.begin(), gpus_.end(),
                     [](const auto& entry) { return !entry.second.thread->Describe().empty(); });
}

std::string DeviceRoom::DescribeHung(Clock::time_point now, Clock::duration patience) const {
  for (const auto& [uuid, gpu] : gpus_) {
    const DeviceThreadActivity activity = gpu.thread->activity();
    const Clock::duration most =
        activity.sets_up ? std::max<Clock::duration>(patience, kSetUpPatience) : patience;
    if (*activity.call == '\0' || now - activity.since < most) continue;
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
    for (DeviceEvent& event : gpu.thread->TakeEvents()) {
      Handle(uuid, gpu, std::move(event));
      ++handled;
    }
  }
  std::erase_if(
      gpus_, [](const auto& entry) { return entry.second.has_failed && entry.second.asked == 0; });
  return handled;
}

void DeviceRoom::NoteOpened(const std::string& uuid, Gpu& gpu, const DeviceOpened& opened) {
  gpu.has_failed = !opened.status.ok();
  gpu.is_under_mps = opened.is_under_mps;
  if (gpu.has_failed) return LogWarning(opened.status.message());
  if (opened.is_under_mps.value_or(true) || std::exchange(has_warned_, true)) return;
  LogWarning(
      absl::StrCat(uuid,
                   " is used without MPS: this job's trainers and its engine have the GPU "
                   "in turns, each for a time slice, which slows all of them down. Start "
                   "ringd-mps.service, and trainers with CUDA_MPS_PIPE_DIRECTORY as it has"));
}

void DeviceRoom::Handle(const std::string& uuid, Gpu& gpu, DeviceEvent event) {
  std::visit(Visitor{
                 [&](const DeviceOpened& opened) { NoteOpened(uuid, gpu, opened); },
                 [&](DeviceSlabCreated& created) {
                   const auto found = asked_.find(created.slab);
                   if (found == asked_.end()) return;
                   const SlabCallback done = std::move(found->second);
                   asked_.erase(found);
                   --gpu.asked;
                   std::shared_ptr<const SessionSlab> slab;
                   if (created.status.ok()) {
                     slab = std::make_shared<const SessionSlab>(
                         gpu.thread, created.slab, created.bytes, created.gpu, gpu.is_under_mps);
                   }
                   done(created.status, std::move(slab), std::move(created.descriptor));
                 },
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
                 [&](const DeviceCommunicatorFailed& failed) {
                   if (DeviceEvents* const events = ListenerOf(failed.communicator)) {
                     events->OnFailed(failed);
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
