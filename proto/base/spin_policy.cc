#include "proto/base/spin_policy.h"

#include <sched.h>

#include <algorithm>

namespace ringd {
namespace {

// The weight of a new wait in the average is 1 / kMemory.
constexpr std::int64_t kMemory = 8;

}  // namespace

SpinPolicy::SpinPolicy(std::chrono::nanoseconds budget) noexcept
    : budget_ns_(std::max<std::int64_t>(budget.count(), 0)) {}

std::chrono::nanoseconds SpinPolicy::NextBudget() const noexcept {
  if (long_waits_.load(std::memory_order_relaxed) >= kPatience) {
    return std::chrono::nanoseconds(budget_ns_ / kGlanceDivisor);
  }
  return std::chrono::nanoseconds(std::clamp(2 * average_ns_.load(std::memory_order_relaxed),
                                             budget_ns_, kStretch * budget_ns_));
}

// Racing threads may lose a wait, which only delays the change of mind.
void SpinPolicy::Learn(std::chrono::nanoseconds waited) noexcept {
  if (waited.count() > kStretch * budget_ns_) {
    const std::uint32_t before = long_waits_.load(std::memory_order_relaxed);
    if (before < kPatience) long_waits_.store(before + 1, std::memory_order_relaxed);
    return;
  }
  long_waits_.store(0, std::memory_order_relaxed);
  const std::int64_t average = average_ns_.load(std::memory_order_relaxed);
  average_ns_.store(average + (waited.count() - average) / kMemory, std::memory_order_relaxed);
}

Clock::time_point SpinRhythm::Yield() noexcept {
  const Clock::time_point before = Clock::now();
  ::sched_yield();
  const Clock::time_point after = Clock::now();
  Note(after - before);
  return after;
}

}  // namespace ringd
