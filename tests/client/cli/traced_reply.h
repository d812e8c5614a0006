// Replies to ringctl's trace, as ringd makes them, and what becomes of them.
#ifndef RINGD_TESTS_CLIENT_CLI_TRACED_REPLY_H_
#define RINGD_TESTS_CLIENT_CLI_TRACED_REPLY_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/trace/chrome_trace.h"
#include "client/cli/trace/trace_record.h"
#include "client/cli/trace/trace_timeline.h"

namespace ringd::cli {

inline constexpr std::uint64_t kStart = 1'000'000'000'000;

inline TraceEvent Event(TraceStage stage, std::uint64_t at_us, std::uint32_t tensor = 0,
                        std::uint32_t sequence = 0, std::uint64_t value = 64,
                        std::uint8_t member = 0) {
  TraceEvent event;
  event.stage = stage;
  event.at_ns = kStart + at_us * 1000;
  event.value = value;
  event.sequence = sequence;
  event.tensor = tensor;
  event.member = member;
  return event;
}

// `rings`: the engine's events, then the ranks'.
inline void AddNode(v1::TraceReply& reply, const std::vector<std::vector<TraceEvent>>& rings,
                    std::int64_t clock_offset_ns = 0) {
  v1::TracedNode& node = *reply.add_nodes();
  const int first_rank = (reply.nodes_size() - 1) * 2;
  node.set_name(reply.nodes_size() == 1 ? "node-a" : "node-b");
  v1::NodeTrace& trace = *node.mutable_trace();
  for (std::size_t i = 0; i < rings.size(); ++i) {
    if (i > 0) {
      v1::TracedRank& rank = *node.add_ranks();
      rank.set_rank(first_rank + static_cast<int>(i) - 1);
      rank.set_pid(100 + rank.rank());
    }
    trace.add_rings()->set_events(std::string(reinterpret_cast<const char*>(rings[i].data()),
                                              rings[i].size() * sizeof(TraceEvent)));
  }
  trace.set_clock_known(true);
  trace.set_clock_offset_ns(clock_offset_ns);
  trace.set_clock_uncertainty_ns(clock_offset_ns == 0 ? 0 : 700);
  for (std::uint32_t tensor = 0; tensor < 3; ++tensor) {
    v1::TracedTensor& entry = *trace.add_tensors();
    entry.set_number(tensor);
    entry.set_name("t" + std::to_string(tensor));
  }
}

inline v1::TraceReply Reply() {
  v1::TraceReply reply;
  reply.set_job_id("job");
  reply.set_now_ns(kStart);
  return reply;
}

// An operation of a bucket of two tensors of two ranks.
inline std::vector<TraceEvent> OneOperation(std::uint64_t at_us, std::uint32_t sequence) {
  return {Event(TraceStage::kSubmitted, at_us + 1, 0, 2 * sequence, 64, 0),
          Event(TraceStage::kSubmitted, at_us + 2, 1, 2 * sequence + 1, 64, 0),
          Event(TraceStage::kSubmitted, at_us + 3, 0, 2 * sequence, 64, 1),
          Event(TraceStage::kReady, at_us + 3, 0),
          Event(TraceStage::kSubmitted, at_us + 4, 1, 2 * sequence + 1, 64, 1),
          Event(TraceStage::kReady, at_us + 4, 1),
          Event(TraceStage::kStarted, at_us + 5, kNoTracedTensor, sequence, 128),
          Event(TraceStage::kCarries, at_us + 5, 0, sequence),
          Event(TraceStage::kCarries, at_us + 5, 1, sequence),
          Event(TraceStage::kPosted, at_us + 6, kNoTracedTensor, sequence),
          Event(TraceStage::kFirstSent, at_us + 7, kNoTracedTensor, sequence),
          Event(TraceStage::kLastSent, at_us + 9, kNoTracedTensor, sequence),
          Event(TraceStage::kFirstReceived, at_us + 8, kNoTracedTensor, sequence),
          Event(TraceStage::kLastReceived, at_us + 10, kNoTracedTensor, sequence),
          Event(TraceStage::kMoved, at_us + 11, kNoTracedTensor, sequence),
          Event(TraceStage::kCompleted, at_us + 12, kNoTracedTensor, sequence)};
}

inline void Append(std::vector<TraceEvent>& events, const std::vector<TraceEvent>& more) {
  events.insert(events.end(), more.begin(), more.end());
}

inline std::vector<TimelineSlice> Of(const TimelineProcess& process, TrackKind track) {
  std::vector<TimelineSlice> slices;
  for (const TimelineSlice& slice : process.slices) {
    if (slice.track == track) slices.push_back(slice);
  }
  return slices;
}

inline nlohmann::json ChromeTraceOf(const TraceRecord& record) {
  std::string text;
  WriteChromeTrace(record, BuildTimeline(record),
                   [&](absl::string_view piece) { text.append(piece.data(), piece.size()); });
  return nlohmann::json::parse(text);
}

}  // namespace ringd::cli

#endif  // RINGD_TESTS_CLIENT_CLI_TRACED_REPLY_H_
