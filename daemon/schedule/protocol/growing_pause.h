// Pauses between tries of something that may go on being in vain.
#ifndef RINGD_DAEMON_SCHEDULE_PROTOCOL_GROWING_PAUSE_H_
#define RINGD_DAEMON_SCHEDULE_PROTOCOL_GROWING_PAUSE_H_

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/schedule/protocol/schedule_time.h"

namespace ringd {

// Is over at first. Each pause takes twice as long as the one before, up to the longest.
//
// Thread safety: none.
class GrowingPause {
 public:
  GrowingPause(std::chrono::nanoseconds first, std::chrono::nanoseconds longest) noexcept
      : first_(first), longest_(longest), next_(first) {}

  bool IsOver(TimePoint now) const noexcept { return now >= end_; }
  void Begin(TimePoint now) noexcept {
    end_ = now + std::exchange(next_, std::min(2 * next_, longest_));
  }
  // The next pause is the first again. The present one ends when a first one that began now would,
  // if not before.
  void StartOver(TimePoint now) noexcept {
    next_ = first_;
    end_ = std::min(end_, now + first_);
  }

 private:
  const std::chrono::nanoseconds first_;
  const std::chrono::nanoseconds longest_;
  std::chrono::nanoseconds next_;
  TimePoint end_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PROTOCOL_GROWING_PAUSE_H_
