// Wakes the sleepers of another process, for a system call only if somebody sleeps.
#ifndef RINGD_PROTO_BASE_DOORBELL_H_
#define RINGD_PROTO_BASE_DOORBELL_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "proto/base/cache_line.h"
#include "proto/base/futex.h"

namespace ringd {

// Lives in shared memory, all zero at first. The waiter first publishes that it sleeps and then
// looks a last time for work; the ringer first publishes work and then looks for sleepers. With the
// fences between, at least one of the two sees the other (Dekker's pattern), so no wake-up is lost.
//
// Thread safety: any thread of any process, any method.
// Trust: a hostile peer can only cause spurious or missing wake-ups of itself; every wait has a
//   bound, so that a missing one delays and never hangs.
struct alignas(kCacheLineBytes) Doorbell {
  std::atomic<std::uint32_t> rings;     // the futex word; written by ringers
  std::atomic<std::uint32_t> sleepers;  // how many are between look and sleep; written by waiters

  // Call after publishing work. True if a system call was needed.
  bool Ring() noexcept {
    // Pairs with the fence in Wait: our work before, the look at `sleepers` after.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_relaxed) == 0) return false;
    rings.fetch_add(1, std::memory_order_release);
    FutexWakeAll(rings);
    return true;
  }

  // Sleeps until rung, at most `timeout`, unless `has_work()` is true once the sleep is published.
  template <typename HasWork>
  void Wait(std::chrono::nanoseconds timeout, HasWork has_work) noexcept {
    const std::uint32_t seen = rings.load(std::memory_order_acquire);
    sleepers.fetch_add(1, std::memory_order_relaxed);
    // Pairs with the fence in Ring: our presence before, the look for work after.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!has_work()) FutexWait(rings, seen, timeout);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
};

static_assert(sizeof(Doorbell) == kCacheLineBytes);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_DOORBELL_H_
