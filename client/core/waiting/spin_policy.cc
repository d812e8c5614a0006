#include "client/core/waiting/spin_policy.h"

#include <sched.h>

#include <algorithm>

namespace ringd::client {
namespace {

// After this many spins for nothing in a row, most waits only glance ...
constexpr std::uint32_t kPatience = 8;
// ... for this part of the budget ...
constexpr int kGlanceDivisor = 10;
// ... but for every so many-th, which spins in full to notice when waits have become short again.
constexpr std::uint32_t kProbeInterval = 32;

}  // namespace

std::chrono::nanoseconds SpinPolicy::BudgetFor(
    std::optional<std::chrono::nanoseconds> wanted) noexcept {
  return std::max(wanted.value_or(kDefaultBudget), std::chrono::nanoseconds(0));
}

std::chrono::nanoseconds SpinPolicy::NextBudget() noexcept {
  const std::uint32_t unrewarded = unrewarded_.load(std::memory_order_relaxed);
  if (unrewarded < kPatience || unrewarded % kProbeInterval == 0) return budget_;
  return budget_ / kGlanceDivisor;
}

void SpinPolicy::Learn(bool rewarded) noexcept {
  // Racing threads may lose an increment, which only delays the change of mind.
  if (rewarded) {
    unrewarded_.store(0, std::memory_order_relaxed);
  } else {
    unrewarded_.store(unrewarded_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

Clock::time_point SpinRhythm::Yield() noexcept {
  const Clock::time_point before = Clock::now();
  ::sched_yield();
  const Clock::time_point after = Clock::now();
  Note(after - before);
  return after;
}

}  // namespace ringd::client
