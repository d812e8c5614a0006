// The clock of everything that is measured or given a deadline.
#ifndef RINGD_PROTO_BASE_CLOCK_H_
#define RINGD_PROTO_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace ringd {

// CLOCK_MONOTONIC: the same for all processes of a node, unmoved by changes of the wall clock.
using Clock = std::chrono::steady_clock;

// Nanoseconds of Clock, as they stand in shared memory.
inline std::uint64_t NanosOf(Clock::time_point time) noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}
inline std::uint64_t MonotonicNanos() noexcept { return NanosOf(Clock::now()); }

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_CLOCK_H_
