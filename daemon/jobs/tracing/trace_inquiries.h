// The inquiries for traces that a job's node has not begun to answer.
#ifndef RINGD_DAEMON_JOBS_TRACING_TRACE_INQUIRIES_H_
#define RINGD_DAEMON_JOBS_TRACING_TRACE_INQUIRIES_H_

#include <cstddef>
#include <deque>
#include <optional>

#include "proto/base/clock.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// Thread safety: none; the progress thread owns it.
class TraceInquiries {
 public:
  // Of all nodes together. Who asks for more is left without an answer, and his ringctl says so.
  static constexpr std::size_t kMost = 16;

  // Drops it if there are kMost already.
  void Add(v1::TraceInquiry inquiry, Clock::time_point now);
  // Takes out the oldest for whose answer somebody may still wait. Older ones are dropped.
  std::optional<v1::TraceInquiry> Next(Clock::time_point now);
  void Clear() noexcept { waiting_.clear(); }
  bool empty() const noexcept { return waiting_.empty(); }

 private:
  struct Waiting {
    v1::TraceInquiry inquiry;
    Clock::time_point since;
  };

  std::deque<Waiting> waiting_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_TRACING_TRACE_INQUIRIES_H_
