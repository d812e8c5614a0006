// Operations of communicators on one node, which their ranks carry out and tell of themselves.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/trace/trace_slices.h"

namespace ringd::cli {
namespace {

struct Part {
  std::optional<std::int64_t> submitted;
  std::optional<std::int64_t> completed;
  int status = 0;
};

struct Occurrence {
  std::uint64_t bytes = 0;
  std::vector<Part> members;
};

// By communicator, tensor and occurrence.
using Occurrences = std::map<std::tuple<TracedPart, std::uint32_t, std::uint32_t>, Occurrence>;

Occurrences Gather(const RecordedNode& node) {
  Occurrences occurrences;
  for (std::size_t m = 0; m < node.ranks.size(); ++m) {
    for (const TraceEvent& event : node.ranks[m].events) {
      const bool submitted = event.stage == TraceStage::kSubmitted;
      if (!submitted && event.stage != TraceStage::kCompleted) continue;
      const TracedPart part_of_job = TracedPart::OfWord(event.channel);
      Occurrence& occurrence = occurrences[{part_of_job, event.tensor, event.sequence}];
      occurrence.members.resize(node.ranks.size());
      Part& part = occurrence.members[m];
      if (submitted) {
        part.submitted = node.TimeOf(event.at_ns);
        occurrence.bytes = event.value;
      } else {
        part.completed = node.TimeOf(event.at_ns);
        part.status = event.detail;
      }
    }
  }
  return occurrences;
}

// When the communicator's last rank has submitted it; nothing if one has not, as far as is known.
std::optional<std::int64_t> ArrivedAt(const RecordedNode& node, TracedPart communicator,
                                      const Occurrence& occurrence) {
  std::int64_t arrived = INT64_MIN;
  for (std::size_t m = 0; m < occurrence.members.size(); ++m) {
    const Part& part = occurrence.members[m];
    if (part.submitted.has_value()) {
      arrived = std::max(arrived, *part.submitted);
    } else if (node.Has(communicator, m)) {
      return std::nullopt;
    }
  }
  return arrived;
}

}  // namespace

void AddPart(TimelineSlice& slice, const char* name, std::int64_t end_ns) {
  const std::int64_t begin = slice.parts.empty() ? slice.begin_ns : slice.parts.back().end_ns;
  end_ns = std::min(end_ns, slice.end_ns);
  if (end_ns > begin) slice.parts.push_back({name, begin, end_ns});
}

void AddLocalOperations(const RecordedNode& node, std::int64_t end_ns,
                        std::span<TimelineProcess> ranks) {
  for (const auto& [key, occurrence] : Gather(node)) {
    const auto& [communicator, tensor, number] = key;
    const std::optional<std::int64_t> arrived = ArrivedAt(node, communicator, occurrence);
    for (std::size_t m = 0; m < ranks.size(); ++m) {
      const Part& part = occurrence.members[m];
      if (!part.submitted.has_value()) continue;
      TimelineSlice slice;
      slice.name = node.NameOf(communicator, tensor);
      // What is matched by order comes once.
      slice.operation =
          IsTracedOrdered(tensor) ? slice.name : absl::StrCat(slice.name, " #", number);
      slice.tensors = {slice.name};
      slice.tensor_count = 1;
      slice.bytes = occurrence.bytes;
      slice.begin_ns = *part.submitted;
      slice.unfinished = !part.completed.has_value();
      slice.end_ns = std::max(part.completed.value_or(end_ns), slice.begin_ns);
      slice.status = part.status;
      slice.stages.emplace_back("submitted", slice.begin_ns);
      AddPart(slice, "wait for ranks", arrived.value_or(slice.end_ns));
      if (arrived.has_value()) {
        slice.stages.emplace_back("arrived", *arrived);
        AddPart(slice, "reduce", slice.end_ns);
      }
      if (!slice.unfinished) slice.stages.emplace_back("completed", slice.end_ns);
      ranks[m].slices.push_back(std::move(slice));
    }
  }
}

}  // namespace ringd::cli
