// What the engine does not hold against others: that it stood still itself.
#ifndef RINGD_DAEMON_ENGINE_STANDSTILL_H_
#define RINGD_DAEMON_ENGINE_STANDSTILL_H_

#include <chrono>

#include "proto/base/clock.h"

namespace ringd {

// An engine that was stopped, or had no processor, goes on with deadlines that are over and with
// messages that it has not read. What others did in time is among those. So for a moment it judges
// deadlines by the time at which it stood still; meanwhile its other threads read.
//
// Thread safety: none; the progress thread owns it.
class Standstill {
 public:
  // A turn begins that was to begin at `due`, or before if there was something to do.
  void OnTurn(Clock::time_point due, Clock::time_point now) noexcept {
    if (now - due < kLate) return;
    gap_ = due < until_ ? gap_ + (now - due) : now - due;
    until_ = now + kToRead;
  }

  // The time by which a deadline is over.
  Clock::time_point Judged(Clock::time_point now) const noexcept {
    return now < until_ ? now - gap_ : now;
  }

  static constexpr std::chrono::milliseconds kLate{500};
  static constexpr std::chrono::seconds kToRead{1};

 private:
  Clock::duration gap_{};
  Clock::time_point until_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_STANDSTILL_H_
