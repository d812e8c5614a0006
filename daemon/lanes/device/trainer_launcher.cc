#include "daemon/lanes/device/trainer_launcher.h"

#include <sys/socket.h>

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "backends/cuda/timeline.h"
#include "backends/device/launch_message.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

// A trainer tells each second while it is in a step; older news says nothing.
constexpr std::chrono::seconds kNewsAge{3};

}  // namespace

struct TrainerLauncher::Link {
  Mutex mutex;
  TrainerLauncher* launcher ABSL_GUARDED_BY(mutex) = nullptr;  // null: it has gone
};

absl::StatusOr<std::shared_ptr<TrainerLauncher>> TrainerLauncher::Start(
    Options options, UniqueFd socket, ChannelLoop& loop, std::function<void()> wake) {
  std::shared_ptr<TrainerLauncher> launcher(
      new TrainerLauncher(std::move(options), std::move(wake)));
  ChannelEvents events;
  events.on_frame = [link = launcher->link_](const ChannelFrame& frame) {
    const MutexLock lock(link->mutex);
    if (link->launcher != nullptr) link->launcher->Take(frame.bytes);
  };
  events.on_end = [link = launcher->link_](const absl::Status& status) {
    const MutexLock lock(link->mutex);
    TrainerLauncher* const self = link->launcher;
    if (self == nullptr) return;
    const MutexLock inner(self->mutex_);
    if (absl::IsUnavailable(status)) {
      self->Lose(self->Wrong("has gone, or launches nothing any more"), false);
    } else {
      self->Lose(self->Wrong(absl::StrCat("broke the protocol: ", status.message())), true);
    }
  };
  const MutexLock lock(launcher->mutex_);
  absl::StatusOr<std::shared_ptr<Channel>> channel =
      loop.Add(std::move(socket), std::move(events),
               {.frame_bytes = kMostLaunchFrameBytes,
                .queued_bytes = kMostQueuedCommandBytes,
                .incoming_frame_bytes = kMostLaunchEventBytes,
                .takes_fds = false});
  if (!channel.ok()) return channel.status();
  launcher->channel_ = *std::move(channel);
  v1::LaunchCommand command;
  v1::LaunchOpen* const open = command.mutable_open();
  open->set_gpu(launcher->options_.gpu);
  open->set_nccl_library(launcher->options_.nccl_library);
  open->set_nccl_interfaces(launcher->options_.nccl_interfaces);
  open->set_slab_setting(launcher->options_.slab_setting);
  open->set_fusion_setting(launcher->options_.fusion_setting);
  open->set_hears_awaits(true);
  launcher->Send(command);
  return launcher;
}

TrainerLauncher::TrainerLauncher(Options options, std::function<void()> wake)
    : options_(std::move(options)), wake_(std::move(wake)), link_(std::make_shared<Link>()) {
  const MutexLock lock(link_->mutex);
  link_->launcher = this;
}

TrainerLauncher::~TrainerLauncher() {
  Stop(kStopPatience);
  const MutexLock lock(link_->mutex);
  link_->launcher = nullptr;
}

absl::Status TrainerLauncher::Wrong(absl::string_view what) const {
  return absl::AbortedError(
      absl::StrCat(options_.trainer, ", which launches on ", options_.gpu, ", ", what));
}

std::vector<DeviceEvent> TrainerLauncher::TakeEvents() {
  const MutexLock lock(mutex_);
  return std::exchange(events_, {});
}

void TrainerLauncher::Emit(DeviceEvent event) {
  events_.push_back(std::move(event));
  if (events_.size() == 1 && wake_) wake_();
}

void TrainerLauncher::Send(const v1::LaunchCommand& command) {
  if (!lost_.ok() || channel_ == nullptr) return;
  if (channel_->Send(command.SerializeAsString())) return;
  Lose(Wrong("does not read what it is to launch, or has gone"), false);
}

void TrainerLauncher::Lose(const absl::Status& why, bool is_certain) {
  if (!lost_.ok()) return;
  lost_ = why;
  // The loop sees the end, and closes it.
  if (channel_ != nullptr) ::shutdown(channel_->socket(), SHUT_RDWR);
  if (std::exchange(awaits_opened_, false)) Emit(DeviceOpened{why, std::nullopt, ""});
  if (awaits_slab_.has_value()) {
    DeviceSlabCreated created;
    created.slab = *std::exchange(awaits_slab_, std::nullopt);
    created.status = why;
    Emit(std::move(created));
  }
  for (const auto& [request, since] : std::exchange(awaits_ids_, {})) {
    Emit(NcclIdCreated{request, why, {}});
  }
  for (auto& [id, communicator] : communicators_) {
    communicator.description.state = "failed";
    communicator.description.failure = std::string(why.message());
    if (communicator.is_connected) {
      Emit(DeviceCommunicatorFailed{id, why, is_certain});
    } else {
      Emit(DeviceCommunicatorConnected{id, why, is_certain});
    }
  }
  for (const auto& [bucket, in_flight] : std::exchange(buckets_, {})) {
    Emit(DeviceBucketEnded{bucket.second, bucket.first, why, {}});
  }
}

void TrainerLauncher::CreateSlab(DeviceSlabId slab, std::size_t bytes) {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) {
    DeviceSlabCreated created;
    created.slab = slab;
    created.status = lost_;
    return Emit(std::move(created));
  }
  awaits_slab_ = slab;
  slab_asked_ = Clock::now();
  asked_bytes_ = bytes;
  v1::LaunchCommand command;
  command.mutable_create_slab()->set_slab(slab.value());
  command.mutable_create_slab()->set_bytes(bytes);
  Send(command);
}

void TrainerLauncher::ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots) {
  const MutexLock lock(mutex_);
  v1::LaunchCommand command;
  command.mutable_release_slab()->set_slab(slab.value());
  command.mutable_release_slab()->mutable_slots()->Add(slots.begin(), slots.end());
  Send(command);
}

void TrainerLauncher::ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots) {
  const MutexLock lock(mutex_);
  v1::LaunchCommand command;
  command.mutable_release_slots()->set_slab(slab.value());
  command.mutable_release_slots()->mutable_slots()->Add(slots.begin(), slots.end());
  Send(command);
}

void TrainerLauncher::CreateId(std::uint64_t request) {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) return Emit(NcclIdCreated{request, lost_, {}});
  awaits_ids_[request] = Clock::now();
  v1::LaunchCommand command;
  command.set_create_id(request);
  Send(command);
}

void TrainerLauncher::Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank,
                              int size, std::size_t fusion_bytes,
                              std::optional<DeviceSlabId> registered_slab,
                              Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) return Emit(DeviceCommunicatorConnected{communicator, lost_, false});
  NcclDescription description;
  description.version = nccl_version_;
  description.rank = rank;
  description.size = size;
  description.gpu = options_.gpu;
  description.state = "connecting";
  communicators_[communicator] = {std::move(description), false, registered_slab.has_value(),
                                  deadline};
  v1::LaunchCommand command;
  v1::LaunchConnect* const connect = command.mutable_connect();
  connect->set_communicator(communicator.value());
  connect->set_id(id.data(), id.size());
  connect->set_rank(rank);
  connect->set_size(size);
  connect->set_fusion_bytes(fusion_bytes);
  if (registered_slab) connect->set_registered_slab(registered_slab->value());
  connect->set_patience_ns(
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count());
  Send(command);
}

void TrainerLauncher::Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  // From here on it is the trainer's matter, whose process ends when that is done.
  if (communicators_.erase(communicator) == 0) return;
  v1::LaunchCommand command;
  command.mutable_disconnect()->set_communicator(communicator.value());
  command.mutable_disconnect()->set_patience_ns(
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count());
  Send(command);
}

void TrainerLauncher::Abort(DeviceCommunicatorId communicator, absl::string_view reason) {
  const MutexLock lock(mutex_);
  communicators_.erase(communicator);
  v1::LaunchCommand command;
  command.mutable_abort()->set_communicator(communicator.value());
  command.mutable_abort()->set_reason(std::string(reason));
  Send(command);
  const Clock::time_point deadline = Clock::now() + kGrace;
  for (auto bucket = buckets_.lower_bound({communicator, 0});
       bucket != buckets_.end() && bucket->first.first == communicator; ++bucket) {
    bucket->second.deadline = std::min(bucket->second.deadline, deadline);
  }
}

void TrainerLauncher::Enqueue(DeviceBucket bucket) {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) return Emit(DeviceBucketEnded{bucket.id, bucket.communicator, lost_, {}});
  buckets_[{bucket.communicator, bucket.id}] = {bucket.deadline + kGrace};
  v1::LaunchCommand command;
  WriteBucket(bucket, Clock::now(), command.mutable_enqueue());
  Send(command);
}

bool TrainerLauncher::Stop(std::chrono::milliseconds /*patience*/) {
  const MutexLock lock(mutex_);
  Lose(absl::AbortedError("the engine ends"), false);
  return true;
}

DeviceThreadActivity TrainerLauncher::ActivityLocked(Clock::time_point now) const {
  if (now - step_told_ > kNewsAge || !lost_.ok()) return {};
  return step_;
}

DeviceThreadActivity TrainerLauncher::activity() const {
  const MutexLock lock(mutex_);
  return ActivityLocked(Clock::now());
}

std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> TrainerLauncher::Describe() const {
  const MutexLock lock(mutex_);
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> all;
  for (const auto& [id, communicator] : communicators_) {
    all.emplace_back(id, communicator.description);
  }
  return all;
}

void TrainerLauncher::Look(Clock::time_point now, Clock::duration patience,
                           Clock::duration set_up_patience) {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  const DeviceThreadActivity step = ActivityLocked(now);
  const std::string where =
      step.call.empty() ? "" : absl::StrCat(" (it is in a step of its thread: ", step.call, ")");
  const Clock::duration most = step.sets_up ? std::max(patience, set_up_patience) : patience;
  if (!step.call.empty() && now - step.since >= most) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - step.since);
    return Lose(Wrong(absl::StrCat("can't use it: CUDA's driver or NCCL has not ", "come back for ",
                                   seconds.count(), " s: ", step.call)),
                true);
  }
  // Opening comes before the slab, so this is a bound for both.
  if (awaits_slab_.has_value() && now - slab_asked_ >= set_up_patience) {
    return Lose(Wrong(absl::StrCat("has not made its device memory in time", where)), true);
  }
  for (const auto& [request, since] : awaits_ids_) {
    if (now - since < set_up_patience) continue;
    return Lose(Wrong(absl::StrCat("has not made NCCL's id in time", where)), true);
  }
  for (const auto& [id, communicator] : communicators_) {
    if (communicator.is_connected || now < communicator.deadline + kGrace) continue;
    return Lose(Wrong(absl::StrCat("has not said in time whether NCCL's ",
                                   "communicator has come about", where)),
                true);
  }
  for (const auto& [bucket, in_flight] : buckets_) {
    if (now < in_flight.deadline) continue;
    return Lose(Wrong(absl::StrCat("has not ended a bucket in time", where)), true);
  }
}

}  // namespace ringd
