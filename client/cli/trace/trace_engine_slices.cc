// Operations of communicators over several nodes, and on GPUs, as the engine of one node tells of
// them.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/trace/trace_slices.h"
#include "proto/types/collective_kind.h"

namespace ringd::cli {
namespace {

constexpr std::size_t kTensorsNamed = 64;

using Time = std::optional<std::int64_t>;

struct Part {
  std::uint32_t tensor = 0;
  Time ready;
  std::vector<Time> submitted;  // by member
};

struct Operation {
  TracedPart communicator;
  std::uint32_t channel = 0;
  std::uint32_t sequence = 0;
  int kind = 0;
  int algorithm = 0;
  std::uint64_t bytes = 0;
  std::map<TraceStage, std::int64_t> stages;
  std::vector<Part> parts;

  Time At(TraceStage stage) const {
    const auto found = stages.find(stage);
    return found == stages.end() ? std::nullopt : Time(found->second);
  }
};

const char* NameOfAlgorithm(int algorithm) {
  constexpr const char* kNames[] = {"", "flat", "doubling", "ring"};
  return algorithm >= 0 && algorithm < 4 ? kNames[algorithm] : "";
}

std::string NameOfKind(int kind) {
  return kind >= 0 && kind < kCollectiveKindCount
             ? std::string(Name(static_cast<CollectiveKind>(kind)))
             : std::string();
}

// Follows one engine's events, in the order in which they were written.
class EngineStory {
 public:
  EngineStory(const RecordedNode& node, std::int64_t end_ns, std::span<TimelineProcess> processes)
      : node_(node), end_ns_(end_ns), processes_(processes) {}

  void Take(const TraceEvent& event);
  // What goes on still.
  void End();
  SubmissionNames& submissions() { return submissions_; }

 private:
  struct Tensor {
    std::vector<std::deque<std::int64_t>> submitted;  // by member, of what has not ended
    Time ready;
  };

  std::size_t member_count() const { return node_.ranks.size(); }
  Tensor& TensorOf(TracedPart communicator, std::uint32_t number);
  Tensor& TensorOf(const TraceEvent& event) {
    return TensorOf(TracedPart::OfWord(event.channel), event.tensor);
  }
  void TakeOfOperation(const TraceEvent& event);
  void Carry(Operation& operation, std::uint32_t number);
  void Complete(const Operation& operation);
  void Fail(const TraceEvent& event);
  void Draw(const Operation& operation, Time completed);
  void DrawRank(const Operation& operation, Time completed, std::size_t member);
  void DrawEngine(const Operation& operation, Time completed);
  TimelineSlice Describe(const Operation& operation, Time completed) const;
  void DrawWaiting(const std::string& name, const Tensor& tensor, std::size_t member);

  const RecordedNode& node_;
  const std::int64_t end_ns_;
  const std::span<TimelineProcess> processes_;
  std::map<std::pair<TracedPart, std::uint32_t>, Tensor> tensors_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Operation> running_;
  SubmissionNames submissions_;
};

EngineStory::Tensor& EngineStory::TensorOf(TracedPart communicator, std::uint32_t number) {
  Tensor& tensor = tensors_[{communicator, number}];
  tensor.submitted.resize(member_count());
  return tensor;
}

void EngineStory::Take(const TraceEvent& event) {
  switch (event.stage) {
    case TraceStage::kSubmitted:
      TensorOf(event).submitted[event.member].push_back(node_.TimeOf(event.at_ns));
      submissions_.Add(event.member, event.sequence, node_.NameOf(event));
      return;
    case TraceStage::kReady:
      TensorOf(event).ready = node_.TimeOf(event.at_ns);
      return;
    case TraceStage::kFailed:
      Fail(event);
      return;
    default:
      TakeOfOperation(event);
  }
}

void EngineStory::TakeOfOperation(const TraceEvent& event) {
  const std::pair key(event.channel, event.sequence);
  if (event.stage == TraceStage::kStarted) {
    Operation& operation = running_[key] = Operation();
    operation.communicator = TracedPart::OfWord(event.channel);
    operation.channel = TracedPart::ChannelOf(event.channel);
    operation.sequence = event.sequence;
    operation.kind = event.detail;
    operation.bytes = event.value;
    operation.stages[event.stage] = node_.TimeOf(event.at_ns);
    return;
  }
  const auto found = running_.find(key);
  // It was started before the first event that is known.
  if (found == running_.end()) return;
  Operation& operation = found->second;
  switch (event.stage) {
    case TraceStage::kCarries:
      Carry(operation, event.tensor);
      return;
    case TraceStage::kCancelled:
      running_.erase(found);
      return;
    case TraceStage::kMoved:
      operation.algorithm = event.detail;
      break;
    default:
      break;
  }
  operation.stages[event.stage] = node_.TimeOf(event.at_ns);
  if (event.stage != TraceStage::kCompleted) return;
  Complete(operation);
  running_.erase(found);
}

void EngineStory::Carry(Operation& operation, std::uint32_t number) {
  const Tensor& tensor = TensorOf(operation.communicator, number);
  Part& part = operation.parts.emplace_back();
  part.tensor = number;
  part.ready = tensor.ready;
  for (const auto& queue : tensor.submitted) {
    part.submitted.push_back(queue.empty() ? std::nullopt : Time(queue.front()));
  }
}

void EngineStory::Complete(const Operation& operation) {
  const std::int64_t started = *operation.At(TraceStage::kStarted);
  for (const Part& part : operation.parts) {
    for (auto& queue : TensorOf(operation.communicator, part.tensor).submitted) {
      // A later one is the next occurrence's: this one's was before the first event that is known.
      if (!queue.empty() && queue.front() <= started) queue.pop_front();
    }
  }
  Draw(operation, operation.At(TraceStage::kCompleted));
}

void EngineStory::Fail(const TraceEvent& event) {
  Tensor& tensor = TensorOf(event);
  const std::int64_t at = node_.TimeOf(event.at_ns);
  for (std::size_t m = 0; m < member_count(); ++m) {
    if (tensor.submitted[m].empty()) continue;
    DrawWaiting(node_.NameOf(event), tensor, m);
    tensor.submitted[m].pop_front();
    TimelineSlice& slice = processes_[m + 1].slices.back();
    slice.end_ns = std::max(at, slice.begin_ns);
    slice.unfinished = false;
    slice.status = event.detail;
    slice.parts.clear();
  }
}

void EngineStory::End() {
  for (const auto& [key, operation] : running_) {
    Draw(operation, std::nullopt);
    const std::int64_t started = *operation.At(TraceStage::kStarted);
    for (const Part& part : operation.parts) {
      for (auto& queue : TensorOf(operation.communicator, part.tensor).submitted) {
        if (!queue.empty() && queue.front() <= started) queue.pop_front();
      }
    }
  }
  // Where events were lost, a submission without an end may have ended.
  if (node_.lost > 0) return;
  for (const auto& [key, tensor] : tensors_) {
    for (std::size_t m = 0; m < member_count(); ++m) {
      if (tensor.submitted[m].empty()) continue;
      DrawWaiting(node_.NameOf(key.first, key.second), tensor, m);
    }
  }
}

void EngineStory::DrawWaiting(const std::string& name, const Tensor& tensor, std::size_t member) {
  TimelineSlice slice;
  slice.name = name;
  slice.tensors = {slice.name};
  slice.tensor_count = 1;
  slice.begin_ns = tensor.submitted[member].front();
  slice.end_ns = std::max(end_ns_, slice.begin_ns);
  slice.unfinished = true;
  slice.stages.emplace_back("submitted", slice.begin_ns);
  if (tensor.ready.has_value() && *tensor.ready >= slice.begin_ns) {
    slice.stages.emplace_back("ready", *tensor.ready);
    AddPart(slice, "wait for ranks of the node", *tensor.ready);
    AddPart(slice, "agree", slice.end_ns);
  } else {
    AddPart(slice, "wait for ranks of the node", slice.end_ns);
  }
  processes_[member + 1].slices.push_back(std::move(slice));
}

TimelineSlice EngineStory::Describe(const Operation& operation, Time completed) const {
  TimelineSlice slice;
  // What is matched by order has its name alone.
  if (!operation.parts.empty() && IsTracedOrdered(operation.parts.front().tensor)) {
    slice.operation = node_.NameOf(operation.communicator, operation.parts.front().tensor);
  } else {
    slice.operation = absl::StrCat(operation.channel, "/", operation.sequence,
                                   node_.Behind(operation.communicator));
  }
  slice.kind = NameOfKind(operation.kind);
  slice.algorithm = NameOfAlgorithm(operation.algorithm);
  slice.bytes = operation.bytes;
  slice.tensor_count = operation.parts.size();
  for (const Part& part : operation.parts) {
    if (slice.tensors.size() == kTensorsNamed) break;
    slice.tensors.push_back(node_.NameOf(operation.communicator, part.tensor));
  }
  slice.name =
      slice.tensors.empty() ? absl::StrCat("operation ", slice.operation) : slice.tensors.front();
  if (operation.parts.size() > 1) {
    absl::StrAppend(&slice.name, " and ", operation.parts.size() - 1, " more");
  }
  slice.unfinished = !completed.has_value();
  slice.begin_ns = *operation.At(TraceStage::kStarted);
  slice.end_ns = std::max(completed.value_or(end_ns_), slice.begin_ns);
  return slice;
}

void EngineStory::Draw(const Operation& operation, Time completed) {
  DrawEngine(operation, completed);
  for (std::size_t m = 0; m < member_count(); ++m) DrawRank(operation, completed, m);
}

void EngineStory::DrawRank(const Operation& operation, Time completed, std::size_t member) {
  TimelineSlice slice = Describe(operation, completed);
  Time first;
  Time last;
  Time ready;
  for (const Part& part : operation.parts) {
    if (part.ready.has_value()) ready = std::max(ready.value_or(*part.ready), *part.ready);
    const Time submitted = part.submitted[member];
    if (!submitted.has_value()) continue;
    first = std::min(first.value_or(*submitted), *submitted);
    last = std::max(last.value_or(*submitted), *submitted);
  }
  if (!first.has_value() && !node_.Has(operation.communicator, member)) return;
  slice.begin_ns = std::min(first.value_or(slice.begin_ns), slice.begin_ns);
  const auto stage = [&](const char* name, Time at) {
    if (at.has_value()) slice.stages.emplace_back(name, *at);
  };
  stage("submitted", first);
  if (operation.parts.size() > 1) stage("last_submitted", last);
  stage("ready", ready);
  stage("started", operation.At(TraceStage::kStarted));
  stage("posted", operation.At(TraceStage::kPosted));
  stage("first_sent", operation.At(TraceStage::kFirstSent));
  stage("last_sent", operation.At(TraceStage::kLastSent));
  stage("first_received", operation.At(TraceStage::kFirstReceived));
  stage("last_received", operation.At(TraceStage::kLastReceived));
  stage("moved", operation.At(TraceStage::kMoved));
  stage("completed", completed);
  if (last.has_value() && operation.parts.size() > 1) AddPart(slice, "submit", *last);
  if (ready.has_value()) AddPart(slice, "wait for ranks of the node", *ready);
  AddPart(slice, "agree", *operation.At(TraceStage::kStarted));
  const Time moved = operation.At(TraceStage::kMoved);
  AddPart(slice, "queue", operation.At(TraceStage::kPosted).value_or(slice.end_ns));
  AddPart(slice, "transfer", moved.value_or(slice.end_ns));
  if (moved.has_value()) AddPart(slice, "hand over", slice.end_ns);
  processes_[member + 1].slices.push_back(std::move(slice));
}

void EngineStory::DrawEngine(const Operation& operation, Time completed) {
  TimelineSlice slice = Describe(operation, completed);
  const auto between = [&](TrackKind track, Time begin, Time end) {
    if (!begin.has_value() || !end.has_value()) return;
    TimelineSlice part = Describe(operation, completed);
    part.track = track;
    part.begin_ns = *begin;
    part.end_ns = std::max(*begin, *end);
    processes_[0].slices.push_back(std::move(part));
  };
  between(TrackKind::kSends, operation.At(TraceStage::kFirstSent),
          operation.At(TraceStage::kLastSent));
  between(TrackKind::kReceives, operation.At(TraceStage::kFirstReceived),
          operation.At(TraceStage::kLastReceived));
  processes_[0].slices.push_back(std::move(slice));
}

}  // namespace

SubmissionNames AddEngineOperations(const RecordedNode& node, std::int64_t end_ns,
                                    std::span<TimelineProcess> processes) {
  EngineStory story(node, end_ns, processes);
  for (const TraceEvent& event : node.engine) story.Take(event);
  story.End();
  return std::move(story.submissions());
}

}  // namespace ringd::cli
