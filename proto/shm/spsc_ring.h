// A ring of fixed-size records in shared memory: one producer process, one consumer process.
//
// Memory: a RingCursors (two cache lines) and `capacity` records, capacity a power of two. Cursors
// count records since the ring's creation and never wrap in practice (64 bits); a record stands at
// cursor % capacity. Each side works on a view of its own that keeps private copies: its own
// cursor, which it never reads back from shared memory, and the other's, which it reads only when
// the private copy says that the ring is full or empty.
//
// Trust: the other side may write anything at any time. A cursor of the other side that is further
// away than the capacity, or that goes back, is reported as kCorrupt, and the owner ends the
// session. A record is copied out once; the copy is then checked, never the original.
#ifndef RINGD_PROTO_SHM_SPSC_RING_H_
#define RINGD_PROTO_SHM_SPSC_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "proto/base/cache_line.h"

namespace ringd {

// All zero at first.
struct RingCursors {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> produced;  // written by the producer
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> consumed;  // written by the consumer
};
static_assert(sizeof(RingCursors) == 2 * kCacheLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

enum class RingResult : std::uint8_t {
  kOk = 0,
  kFull,     // nothing was pushed
  kEmpty,    // nothing was popped
  kCorrupt,  // the other side broke the ring's rules
};

constexpr bool IsPowerOfTwo(std::uint64_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

// The producer's view. Thread safety: one thread at a time.
template <typename Record>
class RingProducer {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  RingProducer() noexcept = default;
  // A fresh ring, or one that this process has produced into before.
  RingProducer(RingCursors* cursors, Record* records, std::uint32_t capacity) noexcept
      : cursors_(cursors),
        records_(records),
        mask_(capacity - 1),
        produced_(cursors->produced.load(std::memory_order_relaxed)),
        consumed_(produced_) {
    consumed_ = cursors->consumed.load(std::memory_order_relaxed);
  }

  // Copies `record` into the ring and publishes it.
  [[nodiscard]] RingResult TryPush(const Record& record) noexcept {
    if (produced_ - consumed_ > mask_) {
      // Acquire pairs with the consumer's release: its reads of the slot came before.
      consumed_ = cursors_->consumed.load(std::memory_order_acquire);
      if (produced_ - consumed_ > mask_ + 1) return RingResult::kCorrupt;
      if (produced_ - consumed_ > mask_) return RingResult::kFull;
    }
    std::memcpy(&records_[produced_ & mask_], &record, sizeof(Record));
    ++produced_;
    // Release pairs with the consumer's acquire: the record is whole before it is seen.
    cursors_->produced.store(produced_, std::memory_order_release);
    return RingResult::kOk;
  }

 private:
  RingCursors* cursors_ = nullptr;
  Record* records_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t produced_ = 0;
  std::uint64_t consumed_ = 0;
};

// The consumer's view. Thread safety: one thread at a time.
template <typename Record>
class RingConsumer {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  RingConsumer() noexcept = default;
  RingConsumer(RingCursors* cursors, const Record* records, std::uint32_t capacity) noexcept
      : cursors_(cursors),
        records_(records),
        mask_(capacity - 1),
        consumed_(cursors->consumed.load(std::memory_order_relaxed)),
        produced_(consumed_) {}

  // Copies the oldest record into `record` and frees its slot.
  [[nodiscard]] RingResult TryPop(Record& record) noexcept {
    if (consumed_ == produced_) {
      // Acquire pairs with the producer's release in TryPush.
      const std::uint64_t produced = cursors_->produced.load(std::memory_order_acquire);
      if (produced - consumed_ > mask_ + 1) return RingResult::kCorrupt;
      produced_ = produced;
      if (consumed_ == produced_) return RingResult::kEmpty;
    }
    std::memcpy(&record, &records_[consumed_ & mask_], sizeof(Record));
    ++consumed_;
    // Release pairs with the producer's acquire: our read of the slot came before its reuse.
    cursors_->consumed.store(consumed_, std::memory_order_release);
    return RingResult::kOk;
  }

  // True if a TryPop would find a record (or corruption). For the last look before sleeping.
  [[nodiscard]] bool HasWork() const noexcept {
    return consumed_ != cursors_->produced.load(std::memory_order_acquire);
  }

 private:
  RingCursors* cursors_ = nullptr;
  const Record* records_ = nullptr;
  std::uint64_t mask_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t produced_ = 0;
};

}  // namespace ringd

#endif  // RINGD_PROTO_SHM_SPSC_RING_H_
