// A ring of trace events that one writer overwrites for ever, and that others read along.
//
// Memory: a TraceRingHeader, then `capacity` TraceSlots, a power of two, all zero at first. The
// writer never waits for a reader and never knows of one. A reader copies, then looks how far the
// writer has come meanwhile, and drops what may have been overwritten under its hands.
//
// Trust: the writer may be another process and may write anything at any time. A reader copies at
// most `capacity` events a call, whatever the header says; what the events say is for display only.
#ifndef RINGD_PROTO_TRACE_TRACE_RING_H_
#define RINGD_PROTO_TRACE_TRACE_RING_H_

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/base/cache_line.h"
#include "proto/trace/trace_event.h"

namespace ringd {

static_assert(std::endian::native == std::endian::little);

struct TraceRingHeader {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> written;  // events so far; by the writer
};
static_assert(sizeof(TraceRingHeader) == kCacheLineBytes);

// A TraceEvent in pieces that can be read while they are written.
struct TraceSlot {
  static constexpr std::size_t kWords = sizeof(TraceEvent) / sizeof(std::uint64_t);
  std::atomic<std::uint64_t> words[kWords];
};
static_assert(sizeof(TraceSlot) == sizeof(TraceEvent));

constexpr std::uint64_t TraceRingBytes(std::uint32_t capacity) noexcept {
  return sizeof(TraceRingHeader) + std::uint64_t{capacity} * sizeof(TraceSlot);
}

// Where a ring lies. Does not own the memory.
struct TraceRingView {
  TraceRingHeader* header = nullptr;
  TraceSlot* slots = nullptr;
  std::uint32_t capacity = 0;
};

inline TraceRingView ViewTraceRing(std::byte* base, std::uint32_t capacity) noexcept {
  return {reinterpret_cast<TraceRingHeader*>(base),
          reinterpret_cast<TraceSlot*>(base + sizeof(TraceRingHeader)), capacity};
}

// Thread safety: one thread at a time.
class TraceWriter {
 public:
  // Writes nowhere.
  TraceWriter() noexcept = default;
  // Requirement: nobody has written into the ring before.
  explicit TraceWriter(const TraceRingView& ring) noexcept
      : ring_(ring), mask_(ring.capacity - 1) {}

  void Write(const TraceEvent& event) noexcept {
    if (ring_.header == nullptr) return;
    // Put together in registers: stored in fields and loaded in words, it would wait for the
    // stores.
    const Words words{{event.at_ns, event.value,
                       event.channel | std::uint64_t{event.sequence} << 32,
                       event.tensor | static_cast<std::uint64_t>(event.stage) << 32 |
                           std::uint64_t{event.member} << 40 | std::uint64_t{event.detail} << 48}};
    TraceSlot& slot = ring_.slots[written_ & mask_];
    // Pairs with the reader's acquire fence: who reads one of these words sees `written` as it
    // stands now.
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < TraceSlot::kWords; ++i) {
      slot.words[i].store(words.of[i], std::memory_order_relaxed);
    }
    // Release pairs with the reader's acquire: the event is whole before it is counted.
    ring_.header->written.store(++written_, std::memory_order_release);
  }

 private:
  friend class TraceReader;
  struct Words {
    std::uint64_t of[TraceSlot::kWords];
  };

  TraceRingView ring_;
  std::uint64_t mask_ = 0;
  std::uint64_t written_ = 0;  // never read back from shared memory
};

// What a reader has got.
struct TraceRead {
  std::uint64_t next = 0;  // where to go on
  std::uint64_t lost = 0;  // overwritten before they could be read
  bool more = false;       // there is more to be read at once
  std::size_t copied = 0;  // what the read has cost, in events: also those that had to be dropped
};

// Thread safety: any number of readers, each on any thread.
class TraceReader {
 public:
  explicit TraceReader(const TraceRingView& ring) noexcept : ring_(ring) {}

  // How many events there have been; the writer's word.
  std::uint64_t written() const noexcept {
    return ring_.header->written.load(std::memory_order_acquire);
  }

  // Appends the events from number `from` on to `out`, at most `most`.
  TraceRead Read(std::uint64_t from, std::size_t most, std::vector<TraceEvent>& out) const {
    // Acquire pairs with the writer's release: all events counted are whole, or overwritten by
    // later ones.
    const std::uint64_t written = this->written();
    TraceRead read{.next = from};
    // A writer that goes back breaks the rules: start where it says it is.
    if (from > written) return {.next = written};
    const std::uint64_t oldest = written > ring_.capacity ? written - ring_.capacity : 0;
    const std::uint64_t begin = std::max(from, oldest);
    const std::uint64_t end = begin + std::min<std::uint64_t>(written - begin, most);
    const std::size_t base = out.size();
    for (std::uint64_t number = begin; number < end; ++number) out.push_back(Copy(number));
    // Pairs with the writer's release fence, see there.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t now = ring_.header->written.load(std::memory_order_relaxed);
    // Number `now` may be half written, in the slot of number now - capacity.
    const std::uint64_t intact = now >= ring_.capacity ? now - ring_.capacity + 1 : 0;
    const std::uint64_t first = std::clamp(intact, begin, end);
    const auto place = [&](std::uint64_t number) {
      return out.begin() + static_cast<std::ptrdiff_t>(base + (number - begin));
    };
    out.erase(place(begin), place(first));
    read.next = end;
    read.lost = first - from;
    read.more = end < written;
    read.copied = end - begin;
    return read;
  }

 private:
  TraceEvent Copy(std::uint64_t number) const noexcept {
    const TraceSlot& slot = ring_.slots[number & (ring_.capacity - 1)];
    TraceWriter::Words words;
    for (std::size_t i = 0; i < TraceSlot::kWords; ++i) {
      words.of[i] = slot.words[i].load(std::memory_order_relaxed);
    }
    return std::bit_cast<TraceEvent>(words);
  }

  TraceRingView ring_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_TRACE_TRACE_RING_H_
