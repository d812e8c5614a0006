#include "client/core/waiting/spin_trial.h"

#include "proto/base/median.h"

namespace ringd::client {

bool SpinTrial::Spins(std::uint64_t completed) const {
  if (InTrial(completed)) return TriesSpinning(completed);
  MutexLock lock(mutex_);
  return spins_;
}

void SpinTrial::Learn(std::uint64_t completed, std::chrono::nanoseconds took) {
  MutexLock lock(mutex_);
  if (!InTrial(completed)) {
    if (!spun_.empty() || !slept_.empty()) Decide();
    return;
  }
  // Of a block's first ones some ranks' waits had begun in the other way.
  if (completed % kPeriod % kBlock < kUnsettled) return;
  (TriesSpinning(completed) ? spun_ : slept_).push_back(took);
}

void SpinTrial::Decide() {
  if (spun_.size() >= kEnough && slept_.size() >= kEnough) {
    const auto spun = static_cast<double>(MedianOf(spun_).count());
    const auto slept = static_cast<double>(MedianOf(slept_).count());
    spins_ = spun * kWorthwhile < slept;
  }
  spun_.clear();
  slept_.clear();
}

}  // namespace ringd::client
