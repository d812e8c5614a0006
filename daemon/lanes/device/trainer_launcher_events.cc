// What a trainer that launches tells its engine.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "backends/cuda/timeline.h"
#include "backends/device/launch_message.h"
#include "daemon/lanes/device/trainer_launcher.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

constexpr std::chrono::hours kLongestStep{24};

}  // namespace

void TrainerLauncher::Take(const std::string& frame) {
  const MutexLock lock(mutex_);
  if (!lost_.ok()) return;
  v1::LaunchEvent message;
  if (!message.ParseFromString(frame)) {
    return Lose(Wrong("broke the protocol: it told what is no event"), true);
  }
  if (message.event_case() == v1::LaunchEvent::kStep) return Hear(message.step());
  absl::StatusOr<DeviceEvent> event = ReadEvent(message);
  if (event.ok()) return Hear(*std::move(event));
  Lose(Wrong(absl::StrCat("broke the protocol: ", event.status().message())), true);
}

void TrainerLauncher::Ignore() {
  if (++ignored_ <= kMostIgnored) return;
  Lose(Wrong("broke the protocol: it tells what nobody has asked for"), true);
}

void TrainerLauncher::Hear(const v1::LaunchStep& step) {
  const Clock::time_point now = Clock::now();
  // A library of ours tells no more than one a second.
  if (now - step_told_ < std::chrono::milliseconds(100)) Ignore();
  constexpr std::size_t kMostStepBytes = 128;
  const std::int64_t most = std::chrono::nanoseconds(kLongestStep).count();
  step_.call = std::string(CutToLength(step.call(), kMostStepBytes));
  step_.since = now - std::chrono::nanoseconds(std::clamp<std::int64_t>(step.since_ns(), 0, most));
  step_.sets_up = step.sets_up();
  step_told_ = now;
}

void TrainerLauncher::Hear(DeviceEvent event) {
  if (auto* const opened = std::get_if<DeviceOpened>(&event)) return HearOf(*opened);
  if (auto* const slab = std::get_if<DeviceSlabCreated>(&event)) return HearOf(*slab);
  if (auto* const id = std::get_if<NcclIdCreated>(&event)) return HearOf(*id);
  if (auto* const connected = std::get_if<DeviceCommunicatorConnected>(&event)) {
    return HearOf(*connected);
  }
  if (auto* const told = std::get_if<DeviceMemoryRegistered>(&event)) return HearOf(*told);
  if (auto* const failed = std::get_if<DeviceCommunicatorFailed>(&event)) return HearOf(*failed);
  if (auto* const told = std::get_if<DeviceBucketAwaits>(&event)) return HearOf(*told);
  if (auto* const ended = std::get_if<DeviceBucketEnded>(&event)) return HearOf(*ended);
  if (const auto* const lost = std::get_if<DeviceLost>(&event)) {
    return Lose(Wrong(absl::StrCat("has lost it: ", lost->status.message())), true);
  }
  Ignore();  // a slab that was released
}

void TrainerLauncher::HearOf(DeviceOpened& opened) {
  if (!std::exchange(awaits_opened_, false)) return Ignore();
  if (opened.status.ok()) {
    nccl_version_ = opened.nccl_version;
    return Emit(std::move(opened));
  }
  const absl::Status why(opened.status.code(),
                         absl::StrCat(options_.trainer, ": ", opened.status.message()));
  Emit(DeviceOpened{why, std::nullopt, ""});
  Lose(why, true);
}

void TrainerLauncher::HearOf(DeviceSlabCreated& created) {
  if (awaits_slab_ != created.slab) return Ignore();
  awaits_slab_.reset();
  // The trainer's own memory: how much of it there is decides only what this engine takes for its
  // tensors.
  if (created.status.ok() &&
      (created.bytes < kTimelineBytes || created.bytes - kTimelineBytes < asked_bytes_)) {
    created.status = Wrong("says that its device memory is smaller than was asked for");
  }
  created.gpu = options_.gpu;
  Emit(std::move(created));
}

void TrainerLauncher::HearOf(NcclIdCreated& created) {
  if (awaits_ids_.erase(created.request) == 0) return Ignore();
  Emit(std::move(created));
}

void TrainerLauncher::HearOf(DeviceCommunicatorConnected& connected) {
  const auto found = communicators_.find(connected.communicator);
  if (found == communicators_.end() || found->second.is_connected) return Ignore();
  if (connected.status.ok()) {
    found->second.is_connected = true;
    found->second.description.state = "ready";
  } else {
    communicators_.erase(found);
  }
  Emit(std::move(connected));
}

void TrainerLauncher::HearOf(DeviceMemoryRegistered& told) {
  const auto found = communicators_.find(told.communicator);
  if (found == communicators_.end() || !std::exchange(found->second.awaits_registered, false)) {
    return Ignore();
  }
  found->second.description.registered_bytes = told.bytes;
  found->second.description.not_registered = told.why_not;
  Emit(std::move(told));
}

void TrainerLauncher::HearOf(DeviceCommunicatorFailed& failed) {
  const auto found = communicators_.find(failed.communicator);
  if (found == communicators_.end() || !found->second.is_connected) return Ignore();
  communicators_.erase(found);
  Emit(std::move(failed));
}

void TrainerLauncher::HearOf(DeviceBucketAwaits& told) {
  const auto found = buckets_.find({told.communicator, told.bucket});
  // First that it awaits something, then that it does not: each once.
  if (found == buckets_.end() || found->second.awaits_told == (told.awaits ? 1 : 0) ||
      found->second.awaits_told == 2) {
    return Ignore();
  }
  ++found->second.awaits_told;
  Emit(told);
}

void TrainerLauncher::HearOf(DeviceBucketEnded& ended) {
  if (buckets_.erase({ended.communicator, ended.bucket}) == 0) return Ignore();
  Emit(std::move(ended));
}

}  // namespace ringd
