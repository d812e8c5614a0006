// How a communicator that has failed comes to its end: who waits for it is let go, NCCL aborts, and
// its buckets end when nothing touches their memory any more.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "backends/device/device_communicator.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kReleaseAgain{10};
// From a failure to the hour at which the other ranks have heard of it, over two control streams,
// and have failed their communicators. Less than NcclCommunicator waits after PrepareAbort.
constexpr milliseconds kOthersHear{300};
constexpr milliseconds kEndPatience{1000};

}  // namespace

void DeviceCommunicator::Fail(const absl::Status& status, std::vector<DeviceBucket> queued) {
  if (phase_ == Phase::kFailed) return;
  phase_ = Phase::kFailed;
  failure_ = status;
  failed_at_ = Clock::now();
  if (registered_ != nullptr) registered_->StopAgreeing();
  release_at_ = failed_at_ + (AwaitsTensors() ? kOthersHear : milliseconds(0));
  nccl_->PrepareAbort(status.message());
  std::move(in_flight_.begin(), in_flight_.end(), std::back_inserter(lingering_));
  in_flight_.clear();
  if (launching_) lingering_.push_back(*std::move(launching_));
  launching_.reset();
  for (DeviceBucket& bucket : queued) lingering_.emplace_back().bucket = std::move(bucket);
}

bool DeviceCommunicator::AwaitsTensors() const {
  const auto awaits = [](const Bucket& bucket) {
    return !bucket.bucket.ready.empty() && bucket.times.ready == Clock::time_point();
  };
  return (launching_ && awaits(*launching_)) || std::ranges::any_of(in_flight_, awaits);
}

bool DeviceCommunicator::Release(Clock::time_point now) {
  if (is_released_) return true;
  if (now < release_at_) return false;
  is_released_ = true;
  ReleaseSlots();
  return true;
}

// Errors are no news here: the communicator has failed.
void DeviceCommunicator::ReleaseSlots() {
  std::map<DeviceSlabId, std::vector<std::uint32_t>> slots;
  for (const Bucket& bucket : lingering_) {
    for (const auto* points : {&bucket.bucket.ready, &bucket.bucket.done}) {
      for (const TimelinePoint& point : *points) {
        std::vector<std::uint32_t>& of_slab = slots[point.slab];
        if (std::find(of_slab.begin(), of_slab.end(), point.slot) == of_slab.end()) {
          of_slab.push_back(point.slot);
        }
      }
    }
  }
  for (const auto& [id, of_slab] : slots) {
    const DeviceSlab* const slab = parts_.slabs->FindAny(id);
    if (slab != nullptr) (void)Note(slab->timeline().Release(of_slab));
  }
}

void DeviceCommunicator::EndLingering(std::vector<DeviceBucketEnded>* ended) {
  if (std::exchange(has_ended_all_, true)) return;
  for (const Bucket& bucket : lingering_) {
    ended->push_back({bucket.bucket.id, id_, failure_, bucket.times});
  }
}

bool DeviceCommunicator::IsIdle() {
  return !absl::IsDeadlineExceeded(Note(stream_.WaitIdle(Clock::time_point())));
}

bool DeviceCommunicator::IsDrained(Clock::time_point now, std::vector<DeviceBucketEnded>* ended) {
  if (is_drained_) return true;
  // It has failed since all others were released.
  if (!is_released_) return false;
  nccl_->BeginAbort(failure_.message());
  // While ncclCommAbort frees memory a call of the driver may not come back.
  const bool is_gone = nccl_->IsGone();
  const bool is_over = is_gone && IsIdle();
  if (is_over || (is_gone && now >= next_release_)) {
    next_release_ = now + kReleaseAgain;
    ReleaseSlots();
  }
  if (is_over || now >= failed_at_ + kEndPatience) EndLingering(ended);
  if (!is_over) return false;
  for (Bucket& bucket : lingering_) Retire(&bucket);
  lingering_.clear();
  if (registered_ != nullptr) registered_->Forget();
  is_drained_ = true;
  return true;
}

}  // namespace ringd
