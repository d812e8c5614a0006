// How a caller ends a wait of its own: Ctrl-C.
#ifndef RINGD_CLIENT_CORE_WAITING_INTERRUPT_H_
#define RINGD_CLIENT_CORE_WAITING_INTERRUPT_H_

#include <chrono>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"

namespace ringd::client {

// Whether to wait no longer. Asked about every kInterruptInterval by the thread that waits; may be
// empty.
using InterruptCheck = std::function<bool()>;

inline constexpr std::chrono::milliseconds kInterruptInterval{100};

// One wait that may be interrupted: it goes in slices, with the question between two of them.
//
// Thread safety: none; the waiting thread's.
// Ownership: borrows the check.
class InterruptibleWait {
 public:
  explicit InterruptibleWait(const InterruptCheck& check) : check_(check) {}

  // Until when to wait next; without a check for ever. Asks if a slice is over.
  //   kCancelled: it was interrupted.
  absl::StatusOr<Clock::time_point> NextEnd() {
    if (check_ == nullptr) return Clock::time_point::max();
    const Clock::time_point now = Clock::now();
    if (now < slice_end_) return slice_end_;
    if (slice_end_ != kNotBegun && check_()) {
      return absl::CancelledError("interrupted while it waited");
    }
    slice_end_ = now + kInterruptInterval;
    return slice_end_;
  }

 private:
  static constexpr Clock::time_point kNotBegun = Clock::time_point::min();

  const InterruptCheck& check_;
  Clock::time_point slice_end_ = kNotBegun;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_INTERRUPT_H_
