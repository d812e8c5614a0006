// What the engine does not hold against others: that it stood still itself.
#ifndef RINGD_DAEMON_ENGINE_STANDSTILL_H_
#define RINGD_DAEMON_ENGINE_STANDSTILL_H_

#include <chrono>

#include "proto/base/clock.h"

namespace ringd {

// An engine that was stopped, or had no processor, goes on with deadlines that are over and with
// messages that it has not read. What others did in time is among those. So for a moment it judges
// nobody; meanwhile its other threads read. An engine that is late again and again judges between
// two such moments, so that no deadline is put off for ever.
//
// Thread safety: none; the progress thread owns it.
class Standstill {
 public:
  // A turn begins that was to begin at `due`, or before if there was something to do.
  void OnTurn(Clock::time_point due, Clock::time_point now) noexcept {
    if (has_judged_ && now - due >= kLate) {
      until_ = now + kToRead;
      has_judged_ = false;
    } else if (now >= until_) {
      has_judged_ = true;
    }
  }

  // Whether deadlines are looked at in a turn of this time.
  bool Judges(Clock::time_point now) const noexcept { return now >= until_; }

  static constexpr std::chrono::milliseconds kLate{500};
  static constexpr std::chrono::seconds kToRead{1};

 private:
  Clock::time_point until_;
  bool has_judged_ = true;  // since the last standstill
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_STANDSTILL_H_
