#include "client/cli/trace/chrome_trace.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tests/client/cli/traced_reply.h"

namespace ringd::cli {
namespace {

using nlohmann::json;

TEST_CASE("ChromeTrace: slices of one track never overlap but one within the other") {
  v1::TraceReply reply = Reply();
  std::vector<TraceEvent> events;
  // The second begins before the first has ended.
  std::vector<TraceEvent> first = OneOperation(0, 0);
  std::vector<TraceEvent> second = OneOperation(7, 1);
  Append(events, first);
  Append(events, second);
  AddNode(reply, {events, {}, {}});
  TraceRecord record;
  record.Add(reply);
  const json trace = ChromeTraceOf(record);
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    CHECK(event["ts"] >= 0.0);
    const double begin = event["ts"];
    tracks[{event["pid"], event["tid"]}].emplace_back(begin, begin + double(event["dur"]));
  }
  CHECK(tracks.size() >= 4);
  for (const auto& [track, slices] : tracks) {
    for (const auto& a : slices) {
      for (const auto& b : slices) {
        const bool apart = a.second <= b.first + 1e-6 || b.second <= a.first + 1e-6;
        const bool within = (a.first <= b.first + 1e-6 && b.second <= a.second + 1e-6) ||
                            (b.first <= a.first + 1e-6 && a.second <= b.second + 1e-6);
        CHECK((apart || within));
      }
    }
  }
}

TEST_CASE("ChromeTrace: names with any bytes make valid JSON") {
  v1::TraceReply reply = Reply();
  AddNode(reply, {OneOperation(0, 0), {}, {}});
  reply.mutable_nodes(0)->mutable_trace()->mutable_tensors(0)->set_name("a\"\\\n\xff\x01");
  TraceRecord record;
  record.Add(reply);
  CHECK(ChromeTraceOf(record)["traceEvents"].size() > 5);
}

}  // namespace
}  // namespace ringd::cli
