// The lock of the fast path's cells, between processes.
#ifndef RINGD_PROTO_FAST_PATH_FAST_PATH_LOCK_H_
#define RINGD_PROTO_FAST_PATH_FAST_PATH_LOCK_H_

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/base/clock.h"
#include "proto/fast_path/fast_path_segment.h"

namespace ringd {

// Holds FastPathControl::lock while it lives, if that could be had within `patience`; yields meanwhile. A holder
// that dies keeps it, and its death ends the job; one that is stopped keeps it as long as it is.
class FastPathLock {
 public:
  // `name`: who holds it, for ringd, which attributes stalls by it.
  FastPathLock(std::atomic<std::uint32_t>& word, std::uint32_t name,
               std::chrono::nanoseconds patience) noexcept
      : word_(word), held_(Acquire(name, patience)) {}
  ~FastPathLock() {
    if (held_) word_.store(kFastPathNobody, std::memory_order_release);
  }
  FastPathLock(const FastPathLock&) = delete;
  FastPathLock& operator=(const FastPathLock&) = delete;

  bool held() const noexcept { return held_; }

 private:
  bool Acquire(std::uint32_t name, std::chrono::nanoseconds patience) noexcept {
    constexpr int kTriesPerClock = 16;
    Clock::time_point end{};
    for (;;) {
      for (int i = 0; i < kTriesPerClock; ++i) {
        std::uint32_t nobody = kFastPathNobody;
        if (word_.compare_exchange_weak(nobody, name, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
          return true;
        }
      }
      const Clock::time_point now = Clock::now();
      if (end == Clock::time_point{}) end = now + patience;
      if (now >= end) return false;
      ::sched_yield();
    }
  }

  std::atomic<std::uint32_t>& word_;
  const bool held_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_FAST_PATH_FAST_PATH_LOCK_H_
