// The trace events of a job as they come in, reply by reply, and what is known of its nodes.
#ifndef RINGD_CLIENT_CLI_TRACE_TRACE_RECORD_H_
#define RINGD_CLIENT_CLI_TRACE_TRACE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/rpc/trace.pb.h"
#include "proto/trace/trace_event.h"

namespace ringd::cli {

struct RecordedRank {
  int rank = 0;
  int pid = 0;
  std::vector<TraceEvent> events;
};

// A communicator besides that of all ranks.
struct RecordedCommunicator {
  std::string name;
  std::vector<std::size_t> members;  // positions in RecordedNode::ranks
};

// Of times and offsets that another node may have made up: they wrap.
constexpr std::int64_t WrappingSum(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
constexpr std::int64_t WrappingDifference(std::int64_t a, std::int64_t b) noexcept {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

struct RecordedNode {
  std::string name;
  std::vector<TraceEvent> engine;
  std::vector<RecordedRank> ranks;  // by local rank
  std::map<std::pair<TracedPart, std::uint32_t>, std::string> tensors;
  std::map<TracedPart, RecordedCommunicator> communicators;
  std::uint64_t lost = 0;  // events that nobody read in time
  bool answered = false;   // ever
  bool behind = false;     // the last reply did not have all that had been noted by then
  bool clock_known = false;
  std::int64_t clock_offset_ns =
      0;  // to be added to its times, to get one of the coordinator's node
  std::uint64_t clock_uncertainty_ns = 0;

  std::int64_t TimeOf(std::uint64_t at_ns) const noexcept {
    return WrappingSum(static_cast<std::int64_t>(at_ns), clock_offset_ns);
  }
  // "tensor 7" if its name has not come.
  std::string NameOf(TracedPart part, std::uint32_t tensor) const;
  // Of an event's tensor, likewise.
  std::string NameOf(const TraceEvent& event) const {
    return NameOf(TracedPart::OfWord(event.channel), event.tensor);
  }
  // " of communicator 'x'"; empty: of all ranks.
  std::string Behind(TracedPart part) const;
  // Whether this rank is known to be one of the communicator's.
  bool Has(TracedPart part, std::size_t member) const;
};

// All times in it are those of the coordinator's node, in nanoseconds.
//
// Thread safety: none.
class TraceRecord {
 public:
  // What is kept at most. Until it is written an event takes 430 bytes of memory, drawn as slices,
  // and then 200 in the file (two ranks' tensors of 4 KiB, 2026-11-28).
  static constexpr std::size_t kMostEvents = std::size_t{1} << 20;

  // Takes a reply in. Events that make no sense are left out: a rank may write what it likes.
  void Add(const v1::TraceReply& reply);
  // Drops what happened after end_ns(): rings are read one after the other, so of that some have
  // more than others. When nothing is added any more.
  void CutAtEnd();
  // What to ask for next.
  v1::TraceRequest NextRequest() const;

  // The last reply left something behind that could be had at once.
  bool more() const noexcept { return more_; }
  bool full() const noexcept { return event_count_ >= kMostEvents; }
  std::size_t event_count() const noexcept { return event_count_; }

  const std::string& job_id() const noexcept { return job_id_; }
  std::uint32_t generation() const noexcept { return generation_; }
  const std::vector<RecordedNode>& nodes() const noexcept { return nodes_; }
  // From the second reply, before which all rings had been read once, to the last; of one reply
  // alone: its time.
  std::int64_t begin_ns() const noexcept;
  std::int64_t end_ns() const noexcept;
  // To be added to a time to get the time since 1970.
  std::int64_t unix_offset_ns() const noexcept;
  // Of clocks between nodes over the whole record: what is known of the node's offset, and the
  // drift since.
  std::uint64_t UncertaintyOf(const RecordedNode& node) const noexcept;

 private:
  void AddNode(const v1::NodeTrace& trace, RecordedNode& node);
  std::int64_t AskedTime(std::uint64_t at_ns) const noexcept;

  std::string job_id_;
  std::uint32_t generation_ = 0;
  std::size_t asked_node_ = 0;
  int replies_ = 0;
  std::uint64_t first_ns_ = 0;  // of the asked node's clock
  std::uint64_t last_ns_ = 0;
  std::int64_t asked_unix_offset_ns_ = 0;
  std::vector<RecordedNode> nodes_;
  std::vector<v1::TracePosition> positions_;
  std::size_t event_count_ = 0;
  bool more_ = false;
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TRACE_TRACE_RECORD_H_
