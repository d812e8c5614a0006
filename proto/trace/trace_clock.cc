#include "proto/trace/trace_clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ringd {

bool HasSteadyTicks() noexcept {
#if defined(__x86_64__)
  // AMD64 Architecture Programmer's Manual, volume 3, E.4.7; Intel's has the same bit.
  constexpr unsigned kPowerManagement = 0x8000'0007;
  constexpr unsigned kInvariantTsc = 1U << 8;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(kPowerManagement, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTsc) != 0;
#else
  return false;
#endif
}

std::uint64_t TraceClock::ReadAndAnchor(std::uint64_t ticks) noexcept {
  static const bool has_steady_ticks = HasSteadyTicks();
  // 100 MHz at least, 16 GHz at most.
  constexpr std::uint64_t kMostNanosPerTick = std::uint64_t{10} << kFraction;
  constexpr std::uint64_t kLeastNanosPerTick = (std::uint64_t{1} << kFraction) / 16;
  anchor_ = {ticks, MonotonicNanos()};
  if (!has_steady_ticks) return anchor_.nanos;
  const std::uint64_t span_nanos = anchor_.nanos - first_.nanos;
  if (span_nanos < kLeastSpanNanos) return anchor_.nanos;
  // Of a longer one, as after a pause, there would be too many bits.
  if (span_nanos <= 2 * kMostSpanNanos) {
    const std::uint64_t span_ticks = ticks - first_.ticks;
    const std::uint64_t rate = span_ticks == 0 ? 0 : (span_nanos << kFraction) / span_ticks;
    const bool makes_sense =
        ticks > first_.ticks && rate > kLeastNanosPerTick && rate < kMostNanosPerTick;
    nanos_per_tick_ = rate;
    trusted_ticks_ = makes_sense ? (kTrustedNanos << kFraction) / rate : 0;
    if (makes_sense && span_nanos < kMostSpanNanos) return anchor_.nanos;
  }
  first_ = anchor_;
  return anchor_.nanos;
}

}  // namespace ringd
