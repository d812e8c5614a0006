#include "client/cli/trace/trace_timeline.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/client/cli/traced_reply.h"

namespace ringd::cli {
namespace {

using nlohmann::json;

TEST_CASE("Timeline: an operation is drawn on each rank and each engine, with its stages") {
  v1::TraceReply reply = Reply();
  AddNode(reply, {OneOperation(10, 0), {}, {}});
  TraceRecord record;
  record.Add(reply);
  const Timeline timeline = BuildTimeline(record);
  REQUIRE(timeline.processes.size() == 3);
  CHECK(timeline.processes[0].name == "ringd on node-a");
  CHECK(timeline.processes[2].name == "rank 1 (node-a, pid 101)");
  CHECK(timeline.operations == 2);
  const auto first = Of(timeline.processes[1], TrackKind::kOperations);
  REQUIRE(first.size() == 1);
  CHECK(first[0].name == "t0 and 1 more");
  CHECK(first[0].operation == "0/0");
  CHECK(first[0].bytes == 128);
  CHECK(first[0].tensors == std::vector<std::string>{"t0", "t1"});
  std::vector<std::string> stages;
  for (std::size_t i = 0; i < first[0].stages.size(); ++i) {
    stages.push_back(first[0].stages[i].first);
  }
  CHECK(stages == std::vector<std::string>{"submitted", "last_submitted", "ready", "started",
                                           "posted", "first_sent", "last_sent", "first_received",
                                           "last_received", "moved", "completed"});
  CHECK(first[0].begin_ns == static_cast<std::int64_t>(kStart + 11'000));
  CHECK(first[0].end_ns == static_cast<std::int64_t>(kStart + 22'000));
  // The parts lie one behind the other and fill it.
  std::int64_t at = first[0].begin_ns;
  for (const TimelinePart& part : first[0].parts) {
    CHECK(part.begin_ns == at);
    at = part.end_ns;
  }
  CHECK(at == first[0].end_ns);
  // The other rank was later.
  CHECK(Of(timeline.processes[2], TrackKind::kOperations)[0].begin_ns ==
        static_cast<std::int64_t>(kStart + 13'000));
  CHECK(Of(timeline.processes[0], TrackKind::kSends)[0].end_ns -
            Of(timeline.processes[0], TrackKind::kSends)[0].begin_ns ==
        2000);
}

TEST_CASE("Timeline: each occurrence has the submissions that were its own") {
  v1::TraceReply reply = Reply();
  std::vector<TraceEvent> events = OneOperation(0, 0);
  // The next occurrence is submitted before the first one has ended.
  events.insert(events.end() - 1, Event(TraceStage::kSubmitted, 8, 0, 2));
  Append(events, {Event(TraceStage::kSubmitted, 20, 0, 2, 64, 1), Event(TraceStage::kReady, 20, 0),
                  Event(TraceStage::kStarted, 21, kNoTracedTensor, 1),
                  Event(TraceStage::kCarries, 21, 0, 1),
                  Event(TraceStage::kCompleted, 25, kNoTracedTensor, 1)});
  AddNode(reply, {events, {}, {}});
  TraceRecord record;
  record.Add(reply);
  const Timeline timeline = BuildTimeline(record);
  const auto first = Of(timeline.processes[1], TrackKind::kOperations);
  const auto second = Of(timeline.processes[2], TrackKind::kOperations);
  REQUIRE(first.size() == 2);
  REQUIRE(second.size() == 2);
  CHECK(first[1].begin_ns == static_cast<std::int64_t>(kStart + 8000));
  CHECK(second[1].begin_ns == static_cast<std::int64_t>(kStart + 20'000));
}

TEST_CASE("Timeline: what has been cancelled is drawn as what carries its tensors then") {
  v1::TraceReply reply = Reply();
  std::vector<TraceEvent> events = {Event(TraceStage::kSubmitted, 1, 0, 0),
                                    Event(TraceStage::kReady, 1, 0),
                                    Event(TraceStage::kStarted, 2, kNoTracedTensor, 0),
                                    Event(TraceStage::kCarries, 2, 0, 0),
                                    Event(TraceStage::kCancelled, 3, kNoTracedTensor, 0),
                                    Event(TraceStage::kStarted, 4, kNoTracedTensor, 1),
                                    Event(TraceStage::kCarries, 4, 0, 1),
                                    Event(TraceStage::kCompleted, 5, kNoTracedTensor, 1)};
  AddNode(reply, {events, {}});
  TraceRecord record;
  record.Add(reply);
  const auto slices = Of(BuildTimeline(record).processes[1], TrackKind::kOperations);
  REQUIRE(slices.size() == 1);
  CHECK(slices[0].operation == "0/1");
  CHECK(slices[0].begin_ns == static_cast<std::int64_t>(kStart + 1000));
}

TEST_CASE("Timeline: what has no end goes on to the record's end, and says so") {
  v1::TraceReply reply = Reply();
  std::vector<TraceEvent> events = OneOperation(0, 0);
  events.pop_back();
  events.push_back(Event(TraceStage::kSubmitted, 30, 2, 9));
  AddNode(reply, {events, {}, {}});
  TraceRecord record;
  record.Add(reply);
  v1::TraceReply last = Reply();
  last.set_now_ns(kStart + 50'000'000);
  record.Add(last);
  const auto slices = Of(BuildTimeline(record).processes[1], TrackKind::kOperations);
  REQUIRE(slices.size() == 2);
  for (const TimelineSlice& slice : slices) {
    CHECK(slice.unfinished);
    CHECK(slice.end_ns == static_cast<std::int64_t>(kStart + 50'000'000));
  }
  CHECK(slices[1].name == "t2");
}

TEST_CASE("Timeline: the ranks of a one-node job are drawn by their own word, each for itself") {
  v1::TraceReply reply = Reply();
  AddNode(reply,
          {{},
           {Event(TraceStage::kSubmitted, 1, 0, 7), Event(TraceStage::kCompleted, 9, 0, 7),
            Event(TraceStage::kWaited, 9, 0, 7, 5000)},
           {Event(TraceStage::kSubmitted, 4, 0, 7), Event(TraceStage::kReduced, 8, 0, 7, 2000),
            Event(TraceStage::kCompleted, 10, 0, 7)}});
  TraceRecord record;
  record.Add(reply);
  const Timeline timeline = BuildTimeline(record);
  const auto first = Of(timeline.processes[1], TrackKind::kOperations);
  REQUIRE(first.size() == 1);
  CHECK(first[0].operation == "t0 #7");
  REQUIRE(first[0].parts.size() == 2);
  CHECK(first[0].parts[0].name == "wait for ranks");
  CHECK(first[0].parts[0].end_ns == static_cast<std::int64_t>(kStart + 4000));
  CHECK(Of(timeline.processes[1], TrackKind::kWaits)[0].name == "wait for t0");
  CHECK(Of(timeline.processes[1], TrackKind::kWaits)[0].begin_ns ==
        static_cast<std::int64_t>(kStart + 4000));
  CHECK(Of(timeline.processes[2], TrackKind::kReductions).size() == 1);
  CHECK(timeline.processes[0].slices.empty());
}

TEST_CASE("Timeline: communicators on one node are drawn in any job, those of one name apart") {
  v1::TraceReply reply = Reply();
  const auto of = [](std::uint32_t communicator, TraceEvent event) {
    event.channel = TracedPart(communicator).WordOf(0);
    return event;
  };
  const std::uint32_t ordered = TracedOrdered(17);
  AddNode(reply, {OneOperation(0, 0),
                  {of(1, Event(TraceStage::kSubmitted, 1, 0, 7)),
                   of(1, Event(TraceStage::kCompleted, 5, 0, 7)),
                   of(2, Event(TraceStage::kSubmitted, 2, 0, 7)),
                   of(3, Event(TraceStage::kSubmitted, 6, ordered)),
                   of(3, Event(TraceStage::kCompleted, 7, ordered))},
                  {}});
  v1::NodeTrace& trace = *reply.mutable_nodes(0)->mutable_trace();
  for (const std::uint32_t part : {1, 2}) {
    v1::TracedTensor& tensor = *trace.add_tensors();
    tensor.set_part(part);
    tensor.set_name("t");
    v1::TracedCommunicator& communicator = *trace.add_communicators();
    communicator.set_part(part);
    communicator.set_name("c" + std::to_string(part));
    communicator.add_members(0);
    if (part == 2) communicator.add_members(1);
  }
  TraceRecord record;
  record.Add(reply);
  const Timeline timeline = BuildTimeline(record);
  const auto slices = Of(timeline.processes[1], TrackKind::kOperations);
  REQUIRE(slices.size() == 4);  // that of all ranks among them
  CHECK(slices[0].name == "t of communicator 'c1'");
  CHECK(slices[0].operation == "t of communicator 'c1' #7");
  // All of its ranks have come, and not of the other one.
  REQUIRE(slices[0].stages.size() == 3);
  CHECK(slices[0].stages[1].first == "arrived");
  CHECK(slices[2].name == "t of communicator 'c2'");
  CHECK(slices[2].unfinished);
  CHECK(slices[2].stages.size() == 1);
  CHECK(slices[3].operation == "operation 17 of communicator 3");
  CHECK(Of(timeline.processes[2], TrackKind::kOperations).size() == 1);
}

TEST_CASE("Timeline: an engine's operations of other communicators say of which") {
  v1::TraceReply reply = Reply();
  std::vector<TraceEvent> events = OneOperation(0, 0);
  for (TraceEvent& event : events) event.channel = TracedPart(1).WordOf(3);
  std::erase_if(events, [](const TraceEvent& event) {
    return event.stage == TraceStage::kSubmitted && event.member == 1;
  });
  Append(events, OneOperation(0, 0));
  AddNode(reply, {events, {}, {}});
  v1::TracedCommunicator& communicator =
      *reply.mutable_nodes(0)->mutable_trace()->add_communicators();
  communicator.set_part(1);
  communicator.set_name("c");
  communicator.add_members(0);
  TraceRecord record;
  record.Add(reply);
  const Timeline timeline = BuildTimeline(record);
  const auto first = Of(timeline.processes[1], TrackKind::kOperations);
  REQUIRE(first.size() == 2);
  CHECK(first[0].operation == "3/0 of communicator 'c'");
  CHECK(first[0].name == "tensor 0 of communicator 'c' and 1 more");
  CHECK(first[1].operation == "0/0");
  const auto second = Of(timeline.processes[2], TrackKind::kOperations);
  REQUIRE(second.size() == 1);
  CHECK(second[0].operation == "0/0");
}

TEST_CASE("Timeline: a wait in a job over several nodes names what was submitted") {
  v1::TraceReply reply = Reply();
  AddNode(reply,
          {OneOperation(0, 0), {Event(TraceStage::kWaited, 12, kNoTracedTensor, 1, 3000)}, {}});
  TraceRecord record;
  record.Add(reply);
  CHECK(Of(BuildTimeline(record).processes[1], TrackKind::kWaits)[0].name == "wait for t1");
}

TEST_CASE("Timeline: other nodes' times are moved by their clocks' offset") {
  v1::TraceReply reply = Reply();
  AddNode(reply, {OneOperation(0, 0), {}, {}});
  AddNode(reply, {OneOperation(100, 0), {}, {}}, -100'000);
  TraceRecord record;
  record.Add(reply);
  const Timeline timeline = BuildTimeline(record);
  CHECK(Of(timeline.processes[0], TrackKind::kOperations)[0].begin_ns ==
        Of(timeline.processes[3], TrackKind::kOperations)[0].begin_ns);
  const json trace = ChromeTraceOf(record);
  CHECK(trace["otherData"]["nodes"][1]["clock_offset_us"] == -100.0);
  CHECK(trace["otherData"]["nodes"][1]["clock_uncertainty_us"] == 0.7);
  CHECK(trace["otherData"]["nodes"][0]["clock_uncertainty_us"] == 0.0);
}

}  // namespace
}  // namespace ringd::cli
