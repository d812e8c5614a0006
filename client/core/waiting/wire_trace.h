// The trace events of a rank whose operations ringd carries out: what ringd can't see, its waits
// and the rank exchange.
#ifndef RINGD_CLIENT_CORE_WAITING_WIRE_TRACE_H_
#define RINGD_CLIENT_CORE_WAITING_WIRE_TRACE_H_

#include <cstdint>

#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/trace/trace_ring.h"

namespace ringd::client {

// The ranks of a one-node job, who see everything, write it under a lock that they hold anyway
// (LocalOperations).
//
// Thread safety: any thread. Called behind waits only, never where an operation is submitted.
// Ownership: borrows the ring, of which this is the only writer.
class WireTrace {
 public:
  explicit WireTrace(const TraceRingView& ring) noexcept : writer_(ring) {}

  // Something that began at `begin_ns` and has ended now.
  void WriteSince(std::uint64_t begin_ns, TraceEvent event) noexcept ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    event.at_ns = MonotonicNanos();
    event.value = event.at_ns - begin_ns;
    writer_.Write(event);
  }

 private:
  Mutex mutex_;
  TraceWriter writer_ ABSL_GUARDED_BY(mutex_);
};

// A thread waits for a submission as long as this lives.
class TracedWait {
 public:
  // `trace` null: it is noted nowhere.
  TracedWait(WireTrace* trace, std::uint64_t submission) noexcept
      : trace_(trace),
        submission_(submission),
        begin_ns_(trace == nullptr ? 0 : MonotonicNanos()) {}
  ~TracedWait() {
    if (trace_ == nullptr) return;
    TraceEvent event;
    event.stage = TraceStage::kWaited;
    event.sequence = static_cast<std::uint32_t>(submission_);
    trace_->WriteSince(begin_ns_, event);
  }
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;

 private:
  WireTrace* const trace_;
  const std::uint64_t submission_;
  const std::uint64_t begin_ns_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_WIRE_TRACE_H_
