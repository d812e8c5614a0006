// Operations and waits of a recorded job as slices on tracks, which can be drawn.
#ifndef RINGD_CLIENT_CLI_TRACE_TRACE_TIMELINE_H_
#define RINGD_CLIENT_CLI_TRACE_TRACE_TIMELINE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/trace/trace_record.h"

namespace ringd::cli {

// What a track of a process shows.
enum class TrackKind : std::uint8_t {
  kOperations,
  kWaits,
  kReductions,
  kRankExchange,
  kSends,
  kReceives
};
inline constexpr int kTrackKinds = 6;

struct TimelinePart {
  std::string name;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

struct TimelineSlice {
  TrackKind track = TrackKind::kOperations;
  std::string name;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  bool unfinished = false;          // it went on when the record ended
  std::vector<TimelinePart> parts;  // one behind the other, within it
  // What is told of it. Empty, 0: nothing.
  std::string operation;             // equal on all nodes
  std::vector<std::string> tensors;  // the first of them
  std::uint64_t tensor_count = 0;
  std::uint64_t bytes = 0;
  std::string kind;
  std::string algorithm;
  int status = 0;
  std::vector<std::pair<std::string, std::int64_t>> stages;  // name and time, in order
};

// A rank, or a ringd's engine.
struct TimelineProcess {
  std::string name;  // "rank 3 (node-b, pid 123)"
  int rank = -1;     // -1: a ringd
  int node = 0;
  std::vector<TimelineSlice> slices;
};

struct Timeline {
  std::vector<TimelineProcess> processes;  // node by node, its ringd first
  std::uint64_t operations = 0;            // slices of ranks' operations
};

// What ended before the record began is left out.
Timeline BuildTimeline(const TraceRecord& record);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TRACE_TRACE_TIMELINE_H_
