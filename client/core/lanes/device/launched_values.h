// Which results this process has put on the GPU, where it launches itself.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCHED_VALUES_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCHED_VALUES_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "backends/cuda/timeline.h"
#include "backends/device/device_bucket.h"
#include "proto/base/clock.h"
#include "proto/base/doorbell.h"

namespace ringd::client {

// Of each slot of the slab's timeline the last value that is on a stream, with all that it needs of
// this process. A stream that waits for it needs no further call of the driver to come to its end.
// Calls that the driver makes wait for all streams, as it may when it loads a kernel, would else
// hold up the very launch that the stream waits for.
//
// Thread safety: Note, BeginConnect and EndConnect on one thread each; the rest any.
class LaunchedValues {
 public:
  // Requirement: each is a point of the timeline.
  void Note(std::span<const TimelinePoint> done) noexcept {
    for (const TimelinePoint& point : done) {
      std::atomic<std::uint64_t>& last = last_[point.slot];
      const std::uint64_t before = last.load(std::memory_order_relaxed);
      last.store(std::max(before, point.value), std::memory_order_release);
    }
    bell_.Ring();
  }
  // Requirement, also of Await: IsTimelineSlot(slot).
  bool Has(std::uint32_t slot, std::uint64_t value) const noexcept {
    return last_[slot].load(std::memory_order_acquire) >= value;
  }
  // A communicator begins to come about, or has, or has failed to: its first launch waits for that.
  void BeginConnect() noexcept { connecting_.fetch_add(1, std::memory_order_relaxed); }
  void EndConnect() noexcept { connecting_.fetch_sub(1, std::memory_order_relaxed); }
  bool is_connecting() const noexcept { return connecting_.load(std::memory_order_relaxed) > 0; }
  // Sleeps until that or `until`, or not quite so long.
  void Await(std::uint32_t slot, std::uint64_t value, Clock::time_point until) noexcept {
    const std::chrono::nanoseconds most = until - Clock::now();
    if (most.count() <= 0) return;
    bell_.Wait(most, [&] { return Has(slot, value); });
  }

 private:
  std::array<std::atomic<std::uint64_t>, kTimelineSlots> last_{};
  std::atomic<int> connecting_{0};  // relaxed: who looks, looks again
  Doorbell bell_{};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_LAUNCHED_VALUES_H_
