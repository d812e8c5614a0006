// How a caller ends a wait of its own: Ctrl-C.
#ifndef RINGD_CLIENT_CORE_WAITING_INTERRUPT_H_
#define RINGD_CLIENT_CORE_WAITING_INTERRUPT_H_

#include <chrono>
#include <functional>

#include "absl/status/status.h"
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
  explicit InterruptibleWait(const InterruptCheck& check)
      : check_(check), slice_end_(NextEnd(check)) {}

  // Without a check there is one slice, without an end.
  Clock::time_point slice_end() const noexcept { return slice_end_; }

  // If the slice is over, asks, and begins the next one. kCancelled: it was interrupted.
  absl::Status Check() {
    if (Clock::now() < slice_end_) return absl::OkStatus();
    if (check_()) return absl::CancelledError("interrupted while it waited for room");
    slice_end_ = NextEnd(check_);
    return absl::OkStatus();
  }

 private:
  static Clock::time_point NextEnd(const InterruptCheck& check) {
    return check == nullptr ? Clock::time_point::max() : Clock::now() + kInterruptInterval;
  }

  const InterruptCheck& check_;
  Clock::time_point slice_end_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_INTERRUPT_H_
