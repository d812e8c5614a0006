// The time of trace events, read for a third of what CLOCK_MONOTONIC costs.
#ifndef RINGD_PROTO_TRACE_TRACE_CLOCK_H_
#define RINGD_PROTO_TRACE_TRACE_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/base/clock.h"

namespace ringd {

// The processor's own count of time. It may have passed over a few instructions.
inline std::uint64_t ProcessorTicks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}
// Whether that goes on at one rate, whatever the processor does (CPUID: invariant TSC).
bool HasSteadyTicks() noexcept;

// Goes on from the last reading of MonotonicNanos() by the processor's ticks, for 10 us at most:
// whatever these do (a virtual machine that moves, processors that disagree), it is wrong by no
// more than that, and as a rule by some ten nanoseconds. Never goes back. Where there are no steady
// ticks it reads MonotonicNanos() each time.
//
// Thread safety: one thread at a time; `last` any.
class TraceClock {
 public:
  std::uint64_t Now() noexcept {
    const std::uint64_t ticks = ProcessorTicks();
    const std::uint64_t since = ticks - anchor_.ticks;
    // Wraps around where the ticks have gone back.
    if (since >= trusted_ticks_) return Set(ReadAndAnchor(ticks));
    return Set(anchor_.nanos + (since * nanos_per_tick_ >> kFraction));
  }
  // MonotonicNanos(), if Now() has not been ahead of it.
  std::uint64_t ExactNow() noexcept { return Set(MonotonicNanos()); }
  // What the calls before have returned at most.
  std::uint64_t last() const noexcept { return last_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kTrustedNanos = 10'000;
  // The rate is taken over so long: a reading amid which the thread has to wait for the processor
  // spoils little of it.
  static constexpr std::uint64_t kLeastSpanNanos = 50'000'000;
  static constexpr std::uint64_t kMostSpanNanos = 1'000'000'000;
  static constexpr int kFraction = 32;  // bits of nanos_per_tick_ behind the point

  struct Reading {
    std::uint64_t ticks = 0;
    std::uint64_t nanos = 0;
  };

  std::uint64_t Set(std::uint64_t nanos) noexcept {
    const std::uint64_t now = std::max(nanos, last());
    last_.store(now, std::memory_order_relaxed);
    return now;
  }
  std::uint64_t ReadAndAnchor(std::uint64_t ticks) noexcept;

  Reading anchor_;
  Reading first_;                     // of the span over which the rate is taken
  std::uint64_t trusted_ticks_ = 0;   // 0: no rate is known
  std::uint64_t nanos_per_tick_ = 0;  // with kFraction bits behind the point
  std::atomic<std::uint64_t> last_{0};
};

}  // namespace ringd

#endif  // RINGD_PROTO_TRACE_TRACE_CLOCK_H_
