// Keeps what strangers can provoke from filling the log.
#ifndef RINGD_DAEMON_LOGGING_LOG_LIMITER_H_
#define RINGD_DAEMON_LOGGING_LOG_LIMITER_H_

#include <cstdint>
#include <optional>

#include "proto/base/clock.h"

namespace ringd {

// Lets `lines` lines pass per `period`.
//
// Thread safety: one thread at a time.
class LogLimiter {
 public:
  LogLimiter(std::uint32_t lines, Clock::duration period) noexcept
      : lines_(lines), period_(period) {}

  // How many lines were held back since the last one that passed, if this one may pass now.
  std::optional<std::uint64_t> Pass(Clock::time_point now) noexcept {
    if (!started_.has_value() || now - *started_ >= period_) {
      started_ = now;
      passed_ = 0;
    }
    if (passed_ == lines_) {
      ++suppressed_;
      return std::nullopt;
    }
    ++passed_;
    const std::uint64_t suppressed = suppressed_;
    suppressed_ = 0;
    return suppressed;
  }

 private:
  const std::uint32_t lines_;
  const Clock::duration period_;
  std::optional<Clock::time_point> started_;
  std::uint32_t passed_ = 0;
  std::uint64_t suppressed_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_LOG_LIMITER_H_
