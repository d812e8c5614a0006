// One node's answer to an inquiry for a trace, read a piece at a time.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_TRACE_READING_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_TRACE_READING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "daemon/jobs/communicator/job_communicator.h"
#include "proto/rpc/trace.pb.h"
#include "proto/trace/trace_event.h"
#include "proto/trace/trace_ring.h"

namespace ringd {

// The communicator of the job that events name so; null: there is none (any more).
using FindTraced = std::function<const JobCommunicator*(TracedPart part)>;

// What has happened to operations since a position, ring by ring: the engine's word on theirs, and
// each rank's own, of which nothing is believed but that it is theirs. What is overwritten between
// two steps is counted as lost, and so is told.
//
// Thread safety: none; the progress thread owns it.
// Invariant: all steps together copy at most the events that it was made with, whatever the rings
//   say, and name at most 1,024 tensors and 256 communicators.
class TraceReading {
 public:
  // All rings together give at most `most_events`. An empty position: the answer begins with what
  // is under way.
  TraceReading(v1::TracePosition position, std::size_t most_events)
      : position_(std::move(position)), most_(most_events) {}

  // Goes on, at the cost of about `budget` events. Returns what it has cost, at least one. `job`:
  // the communicator of all ranks.
  // Requirement: it is not done; `job` is the same each time.
  std::size_t Step(const JobCommunicator& job, const FindTraced& find, std::size_t budget);
  bool done() const noexcept { return done_; }
  // Requirement: it is done.
  v1::NodeTrace TakeTrace() { return std::move(trace_); }

 private:
  void BeginRing(const TraceReader& reader, const TraceRingView& view, std::size_t ring_count);
  std::size_t ReadPiece(const JobCommunicator& job, const FindTraced& find, std::size_t most);
  void Keep(const FindTraced& find);
  std::size_t AddName(const FindTraced& find);
  std::size_t AddCommunicator(const FindTraced& find);
  void EndRing() {
    ++ring_;
    ring_begun_ = false;
  }

  const v1::TracePosition position_;
  std::size_t most_;  // events that may still be copied, of all rings
  v1::NodeTrace trace_;
  std::size_t ring_ = 0;  // that is being read
  bool ring_begun_ = false;
  bool skips_ahead_ = false;       // what the next piece has missed is not asked for
  std::uint64_t next_ = 0;         // event of this ring to go on with
  std::size_t share_ = 0;          // events of this ring that may still be copied
  std::vector<TraceEvent> piece_;  // keeps its memory
  std::set<std::pair<TracedPart, std::uint32_t>> named_;  // tensors that are still to be named
  std::set<TracedPart> parts_;                            // likewise, communicators
  bool done_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_TRACE_READING_H_
