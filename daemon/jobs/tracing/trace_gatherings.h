// The traces that this node's ringctls have asked for, until all nodes have answered.
#ifndef RINGD_DAEMON_JOBS_TRACING_TRACE_GATHERINGS_H_
#define RINGD_DAEMON_JOBS_TRACING_TRACE_GATHERINGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/rpc/peer.pb.h"
#include "proto/rpc/trace.pb.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
// Invariant: each gathering that was begun ends with one call of its function, at the latest when
//   this goes.
class TraceGatherings {
 public:
  using Done = std::function<void(const absl::Status&, v1::TraceReply)>;

  // At once, of one job on one node.
  static constexpr std::size_t kMost = 4;
  // A node that has not answered within so long is left out of the reply.
  static constexpr std::chrono::seconds kPatience{2};

  TraceGatherings() = default;
  TraceGatherings(const TraceGatherings&) = delete;
  TraceGatherings& operator=(const TraceGatherings&) = delete;
  ~TraceGatherings();

  // What the coordinator is to be asked. `reply` names the nodes; their traces are filled in here.
  //   kResourceExhausted: there are kMost already; `done` is not called.
  absl::StatusOr<v1::NodeMessage> Begin(const v1::TraceRequest& request, v1::TraceReply reply,
                                        Clock::time_point now, Done done);
  // Of an answer that nobody waits for, or that names no node of the job, nothing is used.
  void OnAnswer(v1::TraceAnswer answer);
  // Ends those that have waited too long, with what has come.
  void EndLate(Clock::time_point now);
  // Ends all.
  void Fail(const absl::Status& why);

  bool empty() const noexcept { return gatherings_.empty(); }

 private:
  struct Gathering {
    std::uint32_t number = 0;
    Clock::time_point deadline;
    v1::TraceReply reply;
    Done done;
  };

  std::list<Gathering> gatherings_;
  std::uint32_t next_number_ = 1;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_TRACING_TRACE_GATHERINGS_H_
