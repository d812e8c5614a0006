// How a thread waits for an operation: it looks, spins, sleeps.
#ifndef RINGD_CLIENT_CORE_WAITING_WAIT_LOOP_H_
#define RINGD_CLIENT_CORE_WAITING_WAIT_LOOP_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "client/core/waiting/presence.h"
#include "client/core/waiting/relax.h"
#include "client/core/waiting/spin_policy.h"
#include "proto/base/clock.h"

namespace ringd::client {

// What a look has found.
enum class Looked : std::uint8_t {
  kNothing,
  kWorked,  // something to do, and has done a piece of it
  kDone,    // what is waited for
};

// The loop that waits of the node lane and the wire lane run through. What they look at, where they
// sleep and for how long is their waiter's:
//
// - `Looked Look()`: one look, and perhaps a piece of work.
// - `bool GoesOn()`: false: the context has ended, and nothing more will come.
// - `auto BeginWaiting()`: the wait takes longer than a few looks; what it returns lives as long.
// - `void BeginSleeping()`: it takes longer than a spin.
// - `bool LookLast()`: the deadline has passed: true if it is done after all.
// - `void Sleep(now, deadline, worked)`: until something may have changed, or the deadline;
//   `worked`: the looks before have. Bounded, so that a lost wake-up or a silent end delays and
//   never hangs.
//
// Thread safety: any thread; a waiter is one thread's.
// Ownership: borrows the policy and the count of waiters.
class WaitLoop {
 public:
  struct Pace {
    int quick_looks = 1;      // before the clock is read for the first time
    int looks_per_clock = 1;  // between two readings of it
  };

  WaitLoop(SpinPolicy& spin, std::atomic<std::uint32_t>& waiters, Pace pace) noexcept
      : spin_(spin), waiters_(waiters), pace_(pace) {}

  // True: what the waiter looks for is done. False: not before the deadline, or it does not go on.
  template <typename Waiter>
  bool Run(Waiter& waiter, Clock::time_point deadline) {
    // The common case costs no clock and tells nobody.
    const int quick_looks = spin_.enabled() ? pace_.quick_looks : 1;
    for (int i = 0; i < quick_looks; ++i) {
      const Looked looked = waiter.Look();
      if (looked == Looked::kDone) return true;
      if (looked == Looked::kWorked && IsLate(deadline)) break;
      Relax();
    }
    const Presence presence(waiters_);
    [[maybe_unused]] const auto noted = waiter.BeginWaiting();
    switch (Spin(waiter, deadline)) {
      case Spun::kDone:
        return true;
      case Spun::kEnded:
        return false;
      case Spun::kInVain:
        return SleepUntilDone(waiter, deadline);
    }
    return false;
  }

 private:
  enum class Spun : std::uint8_t { kDone, kEnded, kInVain };

  // To be asked after work that has taken its time.
  static bool IsLate(Clock::time_point deadline) noexcept {
    return deadline != Clock::time_point::max() && Clock::now() >= deadline;
  }

  template <typename Waiter>
  Spun Spin(Waiter& waiter, Clock::time_point deadline) {
    const std::chrono::nanoseconds budget = spin_.NextBudget();
    if (budget.count() == 0) return Spun::kInVain;
    Clock::time_point now = Clock::now();
    Clock::time_point spin_end = std::min(now + budget, deadline);
    SpinRhythm rhythm(pace_.looks_per_clock);
    do {
      bool worked = false;
      for (int i = 0; i < rhythm.looks(); ++i) {
        const Looked looked = waiter.Look();
        if (looked == Looked::kDone) {
          spin_.Learn(true);
          return Spun::kDone;
        }
        worked = worked || looked == Looked::kWorked;
        if (looked == Looked::kWorked && IsLate(deadline)) break;
        Relax();
      }
      if (!waiter.GoesOn()) return Spun::kEnded;
      now = rhythm.Yield();
      if (worked) spin_end = std::min(now + budget, deadline);
    } while (now < spin_end);
    spin_.Learn(false);
    return Spun::kInVain;
  }

  template <typename Waiter>
  bool SleepUntilDone(Waiter& waiter, Clock::time_point deadline) {
    waiter.BeginSleeping();
    for (;;) {
      bool worked = false;
      Looked looked = Looked::kNothing;
      do {
        looked = waiter.Look();
        worked = worked || looked == Looked::kWorked;
      } while (looked == Looked::kWorked && !IsLate(deadline));
      if (looked == Looked::kDone) return true;
      if (!waiter.GoesOn()) return false;
      const Clock::time_point now = Clock::now();
      if (now >= deadline) return waiter.LookLast();
      waiter.Sleep(now, deadline, worked);
    }
  }

  SpinPolicy& spin_;
  std::atomic<std::uint32_t>& waiters_;
  const Pace pace_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_WAIT_LOOP_H_
