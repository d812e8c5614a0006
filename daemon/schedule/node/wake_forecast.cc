#include "daemon/schedule/node/wake_forecast.h"

#include <algorithm>

namespace ringd {
namespace {

using std::chrono::nanoseconds;

// Runs over which is averaged in the long run.
constexpr std::int32_t kMemory = 8;
// A vigil covers this many times the mean error, to both sides: 98 % of what is normally distributed.
constexpr int kErrorsCovered = 3;
// A pause in one step (a checkpoint, a page from disk) says little about the next one: it counts as this many
// times the usual error at most. If it is the new course of things, the error grows by half in each run.
constexpr int kErrorsBelieved = 4;
constexpr nanoseconds kLeastError = std::chrono::microseconds(50);
// After k unrewarded vigils in a row 2^k runs go without one, and this many at most.
constexpr int kMostDoublings = 8;

}  // namespace

void WakeForecast::Remaining::Add(nanoseconds sample) noexcept {
  nanoseconds change = sample - mean;
  if (count == 0) {
    mean = sample;
    change = nanoseconds(0);
  } else if (count >= kNeeded) {
    const nanoseconds most = kErrorsBelieved * std::max(error, kLeastError);
    change = std::clamp(change, -most, most);
  }
  count = std::min(count + 1, kMemory);
  mean += change / count;
  error += (std::chrono::abs(change) - error) / count;
}

bool WakeForecast::IsInRun(std::size_t tensor) const { return run_of_[tensor] == run_number_; }

void WakeForecast::OnReady(std::size_t tensor, bool learned, bool follows_wait, TimePoint now) {
  if (tensor >= remaining_.size()) {
    remaining_.resize(tensor + 1);
    run_of_.resize(tensor + 1, 0);
  }
  if (!run_.empty() && (follows_wait || IsInRun(tensor))) EndRun();
  run_of_[tensor] = run_number_;
  run_.push_back({tensor, now});
  const Remaining& remaining = remaining_[tensor];
  if (!learned || remaining.count < kNeeded || runs_without_ > 0) return;
  next_.reset();
  // Less than its error: it is the last one itself, or comes together with it.
  if (remaining.mean <= remaining.error) return;
  const TimePoint expected = now + remaining.mean;
  const nanoseconds reach = kErrorsCovered * remaining.error;
  next_ = Vigil{expected - reach - kLead, expected + reach + kTail};
}

void WakeForecast::Forget(std::size_t tensor) {
  if (tensor >= remaining_.size()) return;
  remaining_[tensor] = Remaining();
  run_of_[tensor] = 0;
  std::erase_if(run_, [tensor](const Arrival& arrival) { return arrival.tensor == tensor; });
}

void WakeForecast::CountForeseen() noexcept {
  if (!foreseen_) ++counters_.foreseen;
  foreseen_ = true;
}

void WakeForecast::Keep() noexcept {
  CountForeseen();
  if (!kept_.has_value()) ++counters_.kept;
  kept_ = next_;
  next_.reset();
}

void WakeForecast::LeaveOut() noexcept {
  CountForeseen();
  next_.reset();
}

void WakeForecast::EndRun() {
  const TimePoint end = run_.back().at;
  for (const Arrival& arrival : run_) remaining_[arrival.tensor].Add(end - arrival.at);
  run_.clear();
  ++run_number_;
  next_.reset();
  foreseen_ = false;
  if (runs_without_ > 0) --runs_without_;
  if (kept_.has_value()) Judge(end);
}

void WakeForecast::Judge(TimePoint run_end) noexcept {
  if (kept_->begin <= run_end && run_end <= kept_->end) {
    ++counters_.rewarded;
    unrewarded_ = 0;
  } else {
    unrewarded_ = std::min(unrewarded_ + 1, kMostDoublings);
    runs_without_ = 1 << unrewarded_;
  }
  kept_.reset();
}

}  // namespace ringd
