// Where a rank notes what only it sees of its operations: one ring, whatever the lane.
#ifndef RINGD_CLIENT_CORE_WAITING_TRACE_SINK_H_
#define RINGD_CLIENT_CORE_WAITING_TRACE_SINK_H_

#include <atomic>
#include <cstdint>
#include <thread>

#include "proto/base/clock.h"
#include "proto/trace/trace_ring.h"

namespace ringd::client {

// What the ranks of a communicator on one node carry out they note from beginning to end
// (LocalOperations). Of what ringd carries out: waits, and the rank exchange.
//
// Thread safety: any thread. Threads take turns at a word, since a mutex costs more than the event;
//   who has the turn stores five words and hands it on.
// Ownership: borrows the ring, of which this is the only writer.
class TraceSink {
 public:
  explicit TraceSink(const TraceRingView& ring) noexcept : writer_(ring) {}
  TraceSink(const TraceSink&) = delete;
  TraceSink& operator=(const TraceSink&) = delete;

  void Write(const TraceEvent& event) noexcept {
    // Acquire pairs with the release below: the writer as the thread before has left it.
    for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries) {
      // A thread of real-time priority may keep the one that has the turn from going on.
      if (tries == kMostTries) return;
      std::this_thread::yield();
    }
    writer_.Write(event);
    taken_.store(false, std::memory_order_release);
  }

  // Something that began at `begin_ns` and has ended now.
  void WriteSince(std::uint64_t begin_ns, TraceEvent event) noexcept {
    event.at_ns = MonotonicNanos();
    event.value = event.at_ns - begin_ns;
    Write(event);
  }

 private:
  // Then the event is lost.
  static constexpr int kMostTries = 50;

  std::atomic<bool> taken_{false};
  TraceWriter writer_;  // of the thread that has the turn
};

// Where the operations of one communicator on one node are noted, and how they are named there.
struct TracePlace {
  TraceSink* sink = nullptr;  // null: nowhere
  TracedPart part{};
  bool by_order = false;  // by their numbers
};

// A thread waits for a submission to ringd as long as this lives.
class TracedWait {
 public:
  // `sink` null: it is noted nowhere.
  TracedWait(TraceSink* sink, std::uint64_t submission) noexcept
      : sink_(sink), submission_(submission), begin_ns_(sink == nullptr ? 0 : MonotonicNanos()) {}
  ~TracedWait() {
    if (sink_ == nullptr) return;
    TraceEvent event;
    event.stage = TraceStage::kWaited;
    event.sequence = static_cast<std::uint32_t>(submission_);
    sink_->WriteSince(begin_ns_, event);
  }
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;

 private:
  TraceSink* const sink_;
  const std::uint64_t submission_;
  const std::uint64_t begin_ns_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_TRACE_SINK_H_
