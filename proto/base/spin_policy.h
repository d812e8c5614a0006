// How a waiter spins before it sleeps.
#ifndef RINGD_PROTO_BASE_SPIN_POLICY_H_
#define RINGD_PROTO_BASE_SPIN_POLICY_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/base/clock.h"

namespace ringd {

// How long the next wait spins. Waking a sleeping thread costs tens of microseconds, so a wait that is
// about to end is better spun; a wait that is not is better slept. The policy learns from how long waits
// have lasted:
//   - at least the budget,
//   - twice what waits last on average, where that is at most kStretch budgets: then all are spun through,
//   - a glance, when the last kPatience have all taken longer than kStretch budgets.
//
// Thread safety: any thread may call anything; what it learns is approximate on purpose.
class SpinPolicy {
 public:
  static constexpr std::chrono::microseconds kDefaultBudget{50};
  // Small all-reduces between nodes take 20 to 400 µs; beyond that a wake-up is a small part of a wait.
  static constexpr int kStretch = 10;
  static constexpr std::uint32_t kPatience = 8;
  static constexpr int kGlanceDivisor = 10;

  // No spinning at all; so do budgets of 0 and less.
  SpinPolicy() noexcept = default;
  explicit SpinPolicy(std::chrono::nanoseconds budget) noexcept;

  // False if nobody shall spin, ever.
  bool enabled() const noexcept { return budget_ns_ > 0; }
  // How long the next wait should spin.
  std::chrono::nanoseconds NextBudget() const noexcept;
  // How long a wait has lasted, spun or slept.
  void Learn(std::chrono::nanoseconds waited) noexcept;

 private:
  const std::int64_t budget_ns_ = 0;
  std::atomic<std::int64_t> average_ns_{0};   // of the waits of up to kStretch budgets
  std::atomic<std::uint32_t> long_waits_{0};  // longer ones since the last of those
};

// How often a spinning waiter looks before it yields its processor: often where nobody else wants it, and
// once where others have run meanwhile, since then a look in vain keeps somebody from the work that is
// waited for.
//
// Thread safety: one thread.
class SpinRhythm {
 public:
  // Yielding to nobody takes under 1 µs, to another process and back 2 µs and more.
  static constexpr std::chrono::nanoseconds kAlone{1500};

  explicit SpinRhythm(int looks) noexcept : most_looks_(looks), looks_(looks) {}

  // Looks until the next yield.
  int looks() const noexcept { return looks_; }
  // Yields, and returns the time after it.
  Clock::time_point Yield() noexcept;
  // What Yield() learns from the time that it took.
  void Note(std::chrono::nanoseconds yielded) noexcept {
    looks_ = yielded > kAlone ? 1 : most_looks_;
  }

 private:
  const int most_looks_;
  int looks_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_SPIN_POLICY_H_
