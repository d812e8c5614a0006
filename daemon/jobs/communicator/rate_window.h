// What a counter did per second, lately.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_RATE_WINDOW_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_RATE_WINDOW_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/base/clock.h"

namespace ringd {

// Keeps one sample a second for the last kSeconds.
//
// Thread safety: none.
class RateWindow {
 public:
  static constexpr std::size_t kSeconds = 10;

  // Call now and then with the counter's present value.
  void Sample(std::uint64_t value, Clock::time_point now) noexcept {
    if (count_ > 0 && now - samples_[(next_ + kSlots - 1) % kSlots].at < std::chrono::seconds(1)) {
      return;
    }
    samples_[next_] = {now, value};
    next_ = (next_ + 1) % kSlots;
    if (count_ < kSlots) ++count_;
  }

  // Growth per second between the oldest sample and `value` now; 0 before there is a sample.
  double PerSecond(std::uint64_t value, Clock::time_point now) const noexcept {
    if (count_ == 0) return 0;
    const auto& oldest = samples_[(next_ + kSlots - count_) % kSlots];
    const double seconds = std::chrono::duration<double>(now - oldest.at).count();
    return seconds > 0 ? static_cast<double>(value - oldest.value) / seconds : 0;
  }

 private:
  static constexpr std::size_t kSlots = kSeconds + 1;
  struct Point {
    Clock::time_point at;
    std::uint64_t value = 0;
  };
  std::array<Point, kSlots> samples_;
  std::size_t next_ = 0;
  std::size_t count_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_RATE_WINDOW_H_
