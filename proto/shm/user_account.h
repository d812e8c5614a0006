// What the engines of one user have taken of what that user may have on the node.
//
// The supervisor makes one such segment for each user and gives it to that user's engines alone. An
// engine writes its own slot only; what the user has is the sum of all. When an engine has gone,
// the supervisor sets its slot to zero, whatever was in it.
//
// Trust: a user's engines can write each other's slots, and so refuse that user's jobs. What other
// users may have does not depend on it.
#ifndef RINGD_PROTO_SHM_USER_ACCOUNT_H_
#define RINGD_PROTO_SHM_USER_ACCOUNT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "proto/base/cache_line.h"
#include "proto/shm/engine_slots.h"

namespace ringd {

inline constexpr std::uint64_t kUserAccountMagic = 0x31434341'44474e52;  // "RNGDACC1"
inline constexpr std::uint32_t kUserAccountVersion = 1;

// All zero at first. Relaxed wherever nothing else is said: numbers, by which nothing is published.
struct alignas(kCacheLineBytes) UserAccountSlot {
  std::atomic<std::uint64_t> registration_bytes;
  std::atomic<std::uint64_t> communicators;  // besides each job's one of all ranks
};
static_assert(sizeof(UserAccountSlot) == kCacheLineBytes);

struct UserAccountSegment {
  // Written once by the supervisor, before any engine maps the segment.
  alignas(kCacheLineBytes) std::uint64_t magic;
  std::uint32_t version;
  UserAccountSlot slots[kMostEngines];
};
static_assert(sizeof(UserAccountSegment) == (1 + kMostEngines) * kCacheLineBytes);

// One engine's hand in one of the user's counts.
//
// Whoever takes adds first, and then looks at the sum, so that two engines never take more than
// there is. If both want the last of it at the same moment both may be refused.
//
// Thread safety: any thread.
// Ownership: borrows the segment's memory.
class UserCount {
 public:
  // Requirement: slot < kMostEngines.
  UserCount(UserAccountSegment& segment, std::size_t slot,
            std::atomic<std::uint64_t> UserAccountSlot::*count) noexcept
      : segment_(segment), slot_(slot), count_(count) {}

  // What all engines have together; never turns over, whatever they wrote.
  std::uint64_t Sum() const noexcept {
    std::uint64_t sum = 0;
    for (const UserAccountSlot& slot : segment_.slots) {
      // With those of Add: of two who add, one sees both.
      const std::uint64_t had = (slot.*count_).load(std::memory_order_seq_cst);
      if (had > std::numeric_limits<std::uint64_t>::max() - sum) {
        return std::numeric_limits<std::uint64_t>::max();
      }
      sum += had;
    }
    return sum;
  }
  void Add(std::uint64_t amount) noexcept { own().fetch_add(amount, std::memory_order_seq_cst); }
  void Subtract(std::uint64_t amount) noexcept {
    own().fetch_sub(amount, std::memory_order_relaxed);
  }
  // What this engine has is so much now.
  void Set(std::uint64_t amount) noexcept { own().store(amount, std::memory_order_seq_cst); }

 private:
  std::atomic<std::uint64_t>& own() const noexcept { return segment_.slots[slot_].*count_; }

  UserAccountSegment& segment_;
  const std::size_t slot_;
  std::atomic<std::uint64_t> UserAccountSlot::*const count_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_USER_ACCOUNT_H_
