#include "client/cli/trace/trace_timeline.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/trace/trace_slices.h"

namespace ringd::cli {
namespace {

std::vector<TimelineProcess> MakeProcesses(const TraceRecord& record) {
  std::vector<TimelineProcess> processes;
  for (std::size_t n = 0; n < record.nodes().size(); ++n) {
    const RecordedNode& node = record.nodes()[n];
    processes.push_back({absl::StrCat("ringd on ", node.name), -1, static_cast<int>(n), {}});
    for (const RecordedRank& rank : node.ranks) {
      processes.push_back(
          {absl::StrCat("rank ", rank.rank, " (", node.name, ", pid ", rank.pid, ")"),
           rank.rank,
           static_cast<int>(n),
           {}});
    }
  }
  return processes;
}

TimelineSlice SliceOf(const RecordedNode& node, const TraceEvent& event, TrackKind track,
                      std::string name) {
  TimelineSlice slice;
  slice.track = track;
  slice.name = std::move(name);
  slice.end_ns = node.TimeOf(event.at_ns);
  slice.begin_ns = node.TimeOf(event.at_ns - std::min(event.at_ns, event.value));
  return slice;
}

// What a rank has written of itself, but for the operations that it has carried out.
void AddOwnSlices(const RecordedNode& node, const RecordedRank& rank,
                  const SubmissionNames& submissions, std::uint8_t member,
                  std::vector<TimelineSlice>& slices) {
  for (const TraceEvent& event : rank.events) {
    switch (event.stage) {
      case TraceStage::kWaited: {
        // Where ringd carries them out, the rank knows them by their submissions.
        const std::string name = event.tensor == kNoTracedTensor
                                     ? submissions.NameOf(member, event.sequence)
                                     : node.NameOf(event);
        slices.push_back(SliceOf(node, event, TrackKind::kWaits,
                                 name.empty() ? "wait" : absl::StrCat("wait for ", name)));
        break;
      }
      case TraceStage::kReduced:
        slices.push_back(SliceOf(node, event, TrackKind::kReductions,
                                 absl::StrCat("reduce ", node.NameOf(event))));
        break;
      case TraceStage::kRankExchange:
        slices.push_back(SliceOf(node, event, TrackKind::kRankExchange, node.NameOf(event)));
        break;
      default:
        break;
    }
  }
}

}  // namespace

Timeline BuildTimeline(const TraceRecord& record) {
  Timeline timeline;
  timeline.processes = MakeProcesses(record);
  std::size_t next = 0;
  for (const RecordedNode& node : record.nodes()) {
    const std::span<TimelineProcess> processes =
        std::span(timeline.processes).subspan(next, 1 + node.ranks.size());
    next += processes.size();
    AddLocalOperations(node, record.end_ns(), processes.subspan(1));
    const SubmissionNames submissions = AddEngineOperations(node, record.end_ns(), processes);
    for (std::size_t m = 0; m < node.ranks.size(); ++m) {
      AddOwnSlices(node, node.ranks[m], submissions, static_cast<std::uint8_t>(m),
                   processes[m + 1].slices);
    }
  }
  for (TimelineProcess& process : timeline.processes) {
    std::erase_if(process.slices,
                  [&](const TimelineSlice& slice) { return slice.end_ns < record.begin_ns(); });
    std::stable_sort(
        process.slices.begin(), process.slices.end(),
        [](const TimelineSlice& a, const TimelineSlice& b) { return a.begin_ns < b.begin_ns; });
    if (process.rank < 0) continue;
    timeline.operations += static_cast<std::uint64_t>(
        std::count_if(process.slices.begin(), process.slices.end(), [](const TimelineSlice& slice) {
          return slice.track == TrackKind::kOperations || slice.track == TrackKind::kRankExchange;
        }));
  }
  return timeline;
}

}  // namespace ringd::cli
