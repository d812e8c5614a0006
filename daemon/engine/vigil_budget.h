// How much of a processor ringd may spend on being awake because something is foreseen.
#ifndef RINGD_DAEMON_ENGINE_VIGIL_BUDGET_H_
#define RINGD_DAEMON_ENGINE_VIGIL_BUDGET_H_

#include <algorithm>
#include <chrono>

#include "proto/base/clock.h"

namespace ringd {

// One for all jobs of a ringd: a fiftieth of the time, whatever they foresee and however wrong they are. So short
// steps have no vigils (those of less than some 6 ms), nor have those whose end strays by more than a percent of them.
//
// Thread safety: none. Reads no clock.
class VigilBudget {
 public:
  static constexpr int kPartOfTime = 50;
  // What may be saved up: the longest vigil.
  static constexpr std::chrono::nanoseconds kMost = std::chrono::milliseconds(10);

  explicit VigilBudget(Clock::time_point now) noexcept : since_(now) {}

  // False, and nothing is spent, if there is not so much left at `now`, which never goes back.
  [[nodiscard]] bool TrySpend(std::chrono::nanoseconds time, Clock::time_point now) noexcept {
    saved_ = std::min<std::chrono::nanoseconds>(kMost, saved_ + (now - since_) / kPartOfTime);
    since_ = now;
    if (time > saved_) return false;
    saved_ -= time;
    return true;
  }

 private:
  Clock::time_point since_;
  std::chrono::nanoseconds saved_{0};
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_VIGIL_BUDGET_H_
