// Does the coordinator, on another node, answer?
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_COORDINATOR_WATCH_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_COORDINATOR_WATCH_H_

#include <chrono>
#include <optional>

#include "proto/base/clock.h"

namespace ringd {

// What a node says of ranks elsewhere it has from the coordinator: who is missing, whose GPU is
// awaited. Of one that does not answer that is old, and names ranks that may be there. So while
// something waits here, the coordinator is pinged.
//
// Thread safety: none; the progress thread owns it.
class CoordinatorWatch {
 public:
  // Something waits. True: a ping is to be sent now; one at most is without an answer.
  bool IsDue(Clock::time_point now) noexcept {
    if (unanswered_since_.has_value() || now < next_ping_) return false;
    unanswered_since_ = now;
    next_ping_ = now + kPingInterval;
    return true;
  }

  void OnPong() noexcept { unanswered_since_.reset(); }

  // For how long a ping has gone unanswered, if that is worth telling; nothing: the coordinator
  // answers, or nobody has asked.
  std::optional<std::chrono::seconds> SilentFor(Clock::time_point now) const noexcept {
    if (!unanswered_since_.has_value()) return std::nullopt;
    const auto silent = std::chrono::duration_cast<std::chrono::seconds>(now - *unanswered_since_);
    return silent < kPatience ? std::nullopt : std::optional(silent);
  }

  static constexpr std::chrono::seconds kPingInterval{1};
  static constexpr std::chrono::seconds kPatience{2};

 private:
  std::optional<Clock::time_point> unanswered_since_;
  Clock::time_point next_ping_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_COORDINATOR_WATCH_H_
