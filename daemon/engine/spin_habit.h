// Whether a thread that has run out of work looks for more before it sleeps.
#ifndef RINGD_DAEMON_ENGINE_SPIN_HABIT_H_
#define RINGD_DAEMON_ENGINE_SPIN_HABIT_H_

#include <chrono>
#include <cstdint>

#include "proto/base/clock.h"

namespace ringd {

// Waking a sleeping thread costs tens of microseconds, so it looks for `budget` where that is
// mostly rewarded: by work that came meanwhile. On a line of 10 Gbit/s nearly each look is, on one
// of 1 Gbit/s every fourth, where they took half of an engine's processor time and won nothing.
// Where less than half of the latest are rewarded it sleeps at once, but for each kTrial-th time.
//
// Thread safety: one thread.
class SpinHabit {
 public:
  // 0: never looks.
  explicit SpinHabit(std::chrono::nanoseconds budget) noexcept : budget_(budget) {}

  // There was work, and it is done.
  void OnWork(Clock::time_point now) noexcept;
  // There is none: whether to look again at once, or to sleep.
  bool LooksOn(Clock::time_point now) noexcept;

 private:
  static constexpr double kWorthwhile = 0.5;
  static constexpr std::uint32_t kTrial = 32;
  static constexpr double kWeight = 1.0 / 16;  // of the latest look

  void Learn(bool rewarded) noexcept { rewarded_ += kWeight * ((rewarded ? 1 : 0) - rewarded_); }

  const std::chrono::nanoseconds budget_;
  double rewarded_ = 1;  // share of the latest looks
  std::uint32_t passed_over_ = 0;
  bool has_work_ = false;
  bool is_looking_ = false;
  Clock::time_point until_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_SPIN_HABIT_H_
