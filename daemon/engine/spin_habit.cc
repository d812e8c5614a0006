#include "daemon/engine/spin_habit.h"

#include <utility>

namespace ringd {

void SpinHabit::OnWork(Clock::time_point now) noexcept {
  if (std::exchange(is_looking_, false)) Learn(true);
  has_work_ = true;
  until_ = now + budget_;
}

bool SpinHabit::LooksOn(Clock::time_point now) noexcept {
  if (std::exchange(has_work_, false)) {
    is_looking_ = budget_.count() > 0 && (rewarded_ >= kWorthwhile || ++passed_over_ % kTrial == 0);
  }
  if (!is_looking_ || now < until_) return is_looking_;
  is_looking_ = false;
  Learn(false);
  return false;
}

}  // namespace ringd
