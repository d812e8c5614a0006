// The lock of the rank exchange's cells, between processes.
#ifndef RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_LOCK_H_
#define RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_LOCK_H_

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/base/clock.h"
#include "proto/rank_exchange/rank_exchange_segment.h"

namespace ringd {

// Holds RankExchangeControl::lock while it lives, if that could be had within `patience`; yields
// meanwhile. A holder that dies keeps it, and its death ends the job; one that is stopped keeps it
// as long as it is.
class RankExchangeLock {
 public:
  // `name`: who holds it, for ringd, which attributes stalls by it.
  RankExchangeLock(std::atomic<std::uint32_t>& word, std::uint32_t name,
                   std::chrono::nanoseconds patience) noexcept
      : word_(word), held_(Acquire(name, patience)) {}
  ~RankExchangeLock() {
    if (held_) word_.store(kRankExchangeNobody, std::memory_order_release);
  }
  RankExchangeLock(const RankExchangeLock&) = delete;
  RankExchangeLock& operator=(const RankExchangeLock&) = delete;

  bool held() const noexcept { return held_; }

 private:
  bool Acquire(std::uint32_t name, std::chrono::nanoseconds patience) noexcept {
    constexpr int kTriesPerClock = 16;
    Clock::time_point end{};
    for (;;) {
      for (int i = 0; i < kTriesPerClock; ++i) {
        std::uint32_t nobody = kRankExchangeNobody;
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

#endif  // RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_LOCK_H_
