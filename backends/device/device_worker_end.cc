// How communicators fail, the GPU is lost, and the thread's work ends.
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/device/device_worker.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShutdownPause{1};
// An aborted collective ends within milliseconds, or never.
constexpr std::chrono::seconds kDrainPatience{10};
// ncclCommAbort may take longer: it waits for all streams of the process.
constexpr std::chrono::seconds kAbortPatience{60};

}  // namespace

void DeviceWorker::Fail(DeviceCommunicator* communicator, const absl::Status& status) {
  if (communicator->phase() == DeviceCommunicator::Phase::kFailed) return;
  if (!is_lost_ && !communicator->FindDeviceError().ok()) {
    LoseDevice(communicator->device_error());
    return;
  }
  const bool was_connecting = communicator->phase() == DeviceCommunicator::Phase::kConnecting;
  communicator->Fail(status, TakeQueued(communicator->id()));
  if (was_connecting) {
    emit_(DeviceCommunicatorConnected{communicator->id(), status, is_lost_});
  } else {
    emit_(DeviceCommunicatorFailed{communicator->id(), status, is_lost_});
  }
}

void DeviceWorker::LoseDevice(const absl::Status& status) {
  if (is_lost_) return;
  is_lost_ = true;
  unusable_ = absl::AbortedError(absl::StrCat(
      "GPU ", options_.gpu, " can't be used by this process any more: ", status.message()));
  for (const auto& [id, communicator] : communicators_) Fail(communicator.get(), unusable_);
  CancelSlabs();
  emit_(DeviceLost{unusable_});
}

bool DeviceWorker::SweepFailed(Clock::time_point now) {
  std::vector<DeviceBucketEnded> ended;
  bool is_draining = false;
  const auto look = [&](DeviceCommunicator& communicator) {
    const bool is_drained = communicator.IsDrained(now, &ended);
    EmitEnded(&ended);
    is_draining |= !is_drained;
    if (!is_drained && now >= communicator.failed_at() + kDrainPatience && !communicator.IsIdle()) {
      LoseDevice(absl::DeadlineExceededError("the GPU does not end what was aborted"));
    }
    if (!is_drained && now >= communicator.failed_at() + kAbortPatience &&
        !communicator.nccl()->IsGone()) {
      LoseDevice(absl::DeadlineExceededError("ncclCommAbort does not return"));
    }
    return is_drained;
  };
  bool are_released = true;
  for (const auto& [id, communicator] : communicators_) {
    if (communicator->phase() != DeviceCommunicator::Phase::kFailed) continue;
    are_released &= communicator->Release(now);
  }
  for (const auto& communicator : closing_) are_released &= communicator->Release(now);
  if (!are_released) return true;
  for (const auto& [id, communicator] : communicators_) {
    if (communicator->phase() == DeviceCommunicator::Phase::kFailed) look(*communicator);
  }
  for (auto& communicator : closing_) {
    if (look(*communicator)) drained_.push_back(std::move(communicator));
  }
  std::erase(closing_, nullptr);
  // Freeing memory waits for the GPU. So nothing may be there that could last.
  if (!drained_.empty() && !is_draining && !HasWork()) drained_.clear();
  return is_draining;
}

void DeviceWorker::Shutdown(Clock::time_point deadline) {
  const DeviceStep step(steps_, "ending");
  const absl::Status status = absl::AbortedError("the engine ends");
  if (unusable_.ok()) unusable_ = status;
  CancelSlabs();
  while (!communicators_.empty()) Abort(communicators_.begin()->first, status.message());
  for (const DeviceBucket& bucket : queue_) GiveUp(bucket, status);
  queue_.clear();
  while (SweepFailed(Clock::now()) && Clock::now() < deadline) {
    std::this_thread::sleep_for(kShutdownPause);
  }
  // Where the time was too short: who waits must not wait for ever.
  for (const auto& communicator : closing_) {
    (void)communicator->Release(Clock::time_point::max());
  }
  if (keeps_slabs_.load(std::memory_order_acquire)) slabs_.LeaveBehind();
  if (!closing_.empty()) {
    // The GPU is not done. What it works on stays until the process ends.
    slabs_.Abandon();
    for (auto* const list : {&closing_, &drained_}) {
      for (auto& communicator : *list) (void)communicator.release();
    }
  }
  // On the thread that made them.
  closing_.clear();
  drained_.clear();
  slabs_.Clear();
  current_.reset();
  gpu_ = GpuParts();
}

}  // namespace ringd
