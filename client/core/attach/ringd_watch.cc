#include "client/core/attach/ringd_watch.h"

#include <algorithm>
#include <utility>

namespace ringd::client {

RingdWatch::Verdict RingdWatch::Look(const Sight& sight, Clock::time_point now) noexcept {
  const Clock::duration passed = std::min<Clock::duration>(
      now - std::exchange(last_look_, now).value_or(now), kInterval + kInterval / 2);
  const bool beats = std::exchange(heartbeat_, sight.heartbeat) != sight.heartbeat;
  const bool moved = std::exchange(progress_, sight.progress) != sight.progress;
  const bool called = std::exchange(in_call_, sight.in_call) && sight.in_call;
  const bool waited =
      std::exchange(in_operation_, sight.in_operation) && sight.in_operation && !moved;
  if (beats) {
    silence_ = waited_ = Clock::duration{0};
    warned_ = false;
    return {};
  }
  silence_ += passed;
  waited_ = waited ? waited_ + passed : Clock::duration{0};
  Verdict verdict;
  verdict.silence = std::chrono::duration_cast<std::chrono::seconds>(silence_);
  if (silence_ < kPatience) return verdict;
  verdict.warn = (called || waited) && !warned_;
  warned_ = warned_ || verdict.warn;
  verdict.timed_out = sight.operation_timeout.count() > 0 && waited_ >= sight.operation_timeout;
  return verdict;
}

}  // namespace ringd::client
