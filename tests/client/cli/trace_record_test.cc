#include "client/cli/trace/trace_record.h"

#include <catch2/catch.hpp>
#include <vector>

#include "tests/client/cli/traced_reply.h"

namespace ringd::cli {
namespace {

TEST_CASE("TraceRecord: what happened after the last answer was asked for is cut off") {
  v1::TraceReply reply = Reply();
  reply.set_now_ns(kStart + 5'000);
  // The second rank's ring was read later than the first one's.
  AddNode(reply,
          {{},
           {Event(TraceStage::kSubmitted, 1)},
           {Event(TraceStage::kSubmitted, 2), Event(TraceStage::kCompleted, 5),
            Event(TraceStage::kSubmitted, 6, 0, 1), Event(TraceStage::kCompleted, 7, 0, 1)}});
  TraceRecord record;
  record.Add(reply);
  record.CutAtEnd();
  CHECK(record.event_count() == 3);
  CHECK(Of(BuildTimeline(record).processes[2], TrackKind::kOperations).size() == 1);
}

TEST_CASE("TraceRecord: knows whose last events are missing: the last reply tells") {
  v1::TraceReply whole = Reply();
  AddNode(whole, {{Event(TraceStage::kMoved, 1)}, {}});
  AddNode(whole, {{Event(TraceStage::kMoved, 2)}, {}});
  v1::TraceReply late = whole;
  late.mutable_nodes(1)->clear_trace();
  v1::TraceReply more = whole;
  more.mutable_nodes(0)->mutable_trace()->mutable_rings(1)->set_more(true);
  TraceRecord record;
  record.Add(whole);
  for (const RecordedNode& node : record.nodes()) CHECK_FALSE(node.behind);
  record.Add(late);
  CHECK_FALSE(record.nodes()[0].behind);
  CHECK(record.nodes()[1].behind);
  // It is not waited for: the other nodes have nothing more.
  CHECK_FALSE(record.more());
  record.Add(more);
  CHECK(record.nodes()[0].behind);
  CHECK_FALSE(record.nodes()[1].behind);
  CHECK(record.more());
}

TEST_CASE("TraceRecord: events that make no sense are left out, and no reply breaks it") {
  v1::TraceReply reply = Reply();
  std::vector<TraceEvent> rubbish(100);
  std::uint64_t random = 1;
  for (TraceEvent& event : rubbish) {
    for (std::size_t i = 0; i < sizeof(event); ++i) {
      random = random * 6364136223846793005 + 1442695040888963407;
      reinterpret_cast<unsigned char*>(&event)[i] = static_cast<unsigned char>(random >> 33);
    }
  }
  rubbish.push_back(Event(static_cast<TraceStage>(kTraceStageCount), 1));
  AddNode(reply, {rubbish, rubbish, rubbish});
  reply.mutable_nodes(0)->mutable_trace()->add_rings()->set_events("short");
  reply.mutable_nodes(0)->mutable_trace()->set_clock_offset_ns(INT64_MIN);
  reply.set_node_index(17);
  TraceRecord record;
  record.Add(reply);
  CHECK(record.event_count() < 300);
  CHECK(ChromeTraceOf(record).contains("traceEvents"));
}

}  // namespace
}  // namespace ringd::cli
