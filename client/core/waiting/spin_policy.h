// How long a waiter spins before it sleeps.
#ifndef RINGD_CLIENT_CORE_WAITING_SPIN_POLICY_H_
#define RINGD_CLIENT_CORE_WAITING_SPIN_POLICY_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "proto/base/clock.h"

namespace ringd::client {

// Waking a sleeping thread costs tens of microseconds, so a wait that is about to end is better
// spun; a wait that is not is better slept. The policy learns from whether recent spins were
// rewarded.
//
// Thread safety: any thread may call anything; what it learns is approximate on purpose.
class SpinPolicy {
 public:
  static constexpr std::chrono::microseconds kDefaultBudget{50};

  // No spinning at all.
  SpinPolicy() noexcept = default;
  explicit SpinPolicy(std::chrono::nanoseconds budget) noexcept : budget_(budget) {}

  // What `wanted` says, and kDefaultBudget without it. Whoever spins yields its processor at short
  // intervals, so that ringd gets on also where ranks occupy all of them.
  static std::chrono::nanoseconds BudgetFor(
      std::optional<std::chrono::nanoseconds> wanted) noexcept;

  // False if nobody shall spin, ever.
  bool enabled() const noexcept { return budget_.count() > 0; }
  // How long the next wait should spin.
  std::chrono::nanoseconds NextBudget() noexcept;
  // Whether that wait ended while it spun.
  void Learn(bool rewarded) noexcept;

 private:
  const std::chrono::nanoseconds budget_{0};
  std::atomic<std::uint32_t> unrewarded_{0};  // spins since the last rewarded one
};

// How often a spinning waiter looks before it yields its processor: often where nobody else wants
// it, and once where others have run meanwhile, since then a look in vain keeps somebody from the
// work that is waited for. (The kernel yields within a scheduling group only: what sessions and
// control groups have of a processor is not seen here.)
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

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_SPIN_POLICY_H_
