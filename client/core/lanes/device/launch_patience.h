// How long a stream's wait for a result is put off until the result is on a stream itself.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCH_PATIENCE_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCH_PATIENCE_H_

#include <algorithm>
#include <atomic>
#include <chrono>

namespace ringd::client {

// Some rank may submit only after this rank's stream waits. Then putting it off is in vain, each
// time anew, so the patience shrinks. It comes back, since a rank may also have been late once;
// each time that this was in vain it takes twice as many launches.
//
// Thread safety: any thread may call anything.
class LaunchPatience {
 public:
  static constexpr std::chrono::milliseconds kFull{5000};
  // More than the tensors of a step, mostly.
  static constexpr int kRestoredAfter = 1000;
  static constexpr int kMostLaunches = 1 << 30;

  std::chrono::milliseconds now() const noexcept {
    return std::chrono::milliseconds(milliseconds_.load(std::memory_order_relaxed));
  }
  // The launch has not come in `patience`: a tenth of that next time.
  void NoteInVain(std::chrono::milliseconds patience) noexcept {
    if (patience == kFull && is_restored_.exchange(false, std::memory_order_relaxed)) {
      const int needed = needed_.load(std::memory_order_relaxed);
      needed_.store(std::min(2 * needed, kMostLaunches), std::memory_order_relaxed);
    }
    milliseconds_.store(patience.count() / 10, std::memory_order_relaxed);
    in_time_.store(0, std::memory_order_relaxed);
  }
  // The launch has come.
  void NoteInTime() noexcept {
    if (now() == kFull) return;
    const int needed = needed_.load(std::memory_order_relaxed);
    if (in_time_.fetch_add(1, std::memory_order_relaxed) + 1 < needed) return;
    is_restored_.store(true, std::memory_order_relaxed);
    in_time_.store(0, std::memory_order_relaxed);
    milliseconds_.store(kFull.count(), std::memory_order_relaxed);
  }

 private:
  // Relaxed: numbers by which nothing else is ordered.
  std::atomic<std::chrono::milliseconds::rep> milliseconds_{kFull.count()};
  std::atomic<int> in_time_{0};  // in a row
  std::atomic<int> needed_{kRestoredAfter};
  std::atomic<bool> is_restored_{false};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCH_PATIENCE_H_
