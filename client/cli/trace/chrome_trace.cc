#include "client/cli/trace/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringd::cli {
namespace {

using Json = nlohmann::ordered_json;

// Process 0 means the idle processor to those who draw.
constexpr int kFirstRankProcess = 1;
constexpr int kFirstRingdProcess = 1'000'001;
// Tracks of one kind are numbered from a multiple of this on.
constexpr int kTracksOfKind = 100'000;
// What was under way when the record began is drawn from so long before at most: a rank writes its
// times itself.
constexpr std::int64_t kLongestBefore = 10'000'000'000;

constexpr std::array<const char*, kTrackKinds> kTrackNames = {"operations",    "waits", "reduces",
                                                              "rank exchange", "sends", "receives"};

// JSON text, whatever bytes a tensor's name has.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class ChromeTrace {
 public:
  ChromeTrace(const TraceRecord& record, const Timeline& timeline,
              const std::function<void(absl::string_view)>& write)
      : record_(record), timeline_(timeline), write_(write), base_ns_(BaseOf(record, timeline)) {}

  void Write();

 private:
  static std::int64_t BaseOf(const TraceRecord& record, const Timeline& timeline);
  static double InMicros(std::int64_t ns) { return static_cast<double>(ns) / 1000; }
  double Micros(std::int64_t at_ns) const { return InMicros(WrappingDifference(at_ns, base_ns_)); }
  Json Head() const;
  void WriteProcess(std::size_t number);
  void WriteSlice(const TimelineSlice& slice, int process, int track);
  void WritePart(const TimelinePart& part, int process, int track);
  void WriteName(const char* what, int process, int track, const std::string& name);
  void Emit(const Json& event);
  Json ArgumentsOf(const TimelineSlice& slice) const;

  const TraceRecord& record_;
  const Timeline& timeline_;
  const std::function<void(absl::string_view)>& write_;
  const std::int64_t base_ns_;
  bool any_ = false;
};

std::int64_t ChromeTrace::BaseOf(const TraceRecord& record, const Timeline& timeline) {
  std::int64_t base = record.begin_ns();
  for (const TimelineProcess& process : timeline.processes) {
    for (const TimelineSlice& slice : process.slices) base = std::min(base, slice.begin_ns);
  }
  return std::max(base, record.begin_ns() - kLongestBefore);
}

void ChromeTrace::Write() {
  std::string head = Dump(Head());
  head.back() = ',';  // the object goes on
  write_(head);
  write_("\n\"traceEvents\":[\n");
  for (std::size_t i = 0; i < timeline_.processes.size(); ++i) WriteProcess(i);
  write_("\n]}\n");
}

Json ChromeTrace::Head() const {
  Json nodes = Json::array();
  for (const RecordedNode& node : record_.nodes()) {
    nodes.push_back(
        {{"name", node.name},
         {"answered", node.answered},
         {"clock_known", node.clock_known},
         {"clock_offset_us", static_cast<double>(node.clock_offset_ns) / 1000},
         {"clock_uncertainty_us", static_cast<double>(record_.UncertaintyOf(node)) / 1000},
         {"lost_events", node.lost}});
  }
  return {{"displayTimeUnit", "ms"},
          {"baseTimeNanoseconds", WrappingSum(base_ns_, record_.unix_offset_ns())},
          {"otherData",
           {{"job", record_.job_id()},
            {"generation", record_.generation()},
            {"begin_us", Micros(record_.begin_ns())},
            {"end_us", Micros(record_.end_ns())},
            {"nodes", nodes}}}};
}

void ChromeTrace::Emit(const Json& event) {
  if (any_) write_(",\n");
  any_ = true;
  write_(Dump(event));
}

void ChromeTrace::WriteName(const char* what, int process, int track, const std::string& name) {
  Emit({{"ph", "M"}, {"pid", process}, {"tid", track}, {"name", what}, {"args", {{"name", name}}}});
}

void ChromeTrace::WriteProcess(std::size_t number) {
  const TimelineProcess& process = timeline_.processes[number];
  const int id =
      process.rank < 0 ? kFirstRingdProcess + process.node : kFirstRankProcess + process.rank;
  WriteName("process_name", id, 0, process.name);
  Emit({{"ph", "M"},
        {"pid", id},
        {"tid", 0},
        {"name", "process_sort_index"},
        {"args", {{"sort_index", number}}}});
  // By kind: when the last slice of each track has ended.
  std::array<std::vector<std::int64_t>, kTrackKinds> tracks;
  for (const TimelineSlice& slice : process.slices) {
    const auto kind = static_cast<std::size_t>(slice.track);
    std::vector<std::int64_t>& ends = tracks[kind];
    auto free = std::find_if(ends.begin(), ends.end(),
                             [&](std::int64_t end) { return end <= slice.begin_ns; });
    if (free == ends.end()) {
      if (ends.size() + 1 == kTracksOfKind) continue;
      free = ends.insert(ends.end(), 0);
      const std::string name = kTrackNames[kind];
      WriteName("thread_name", id,
                static_cast<int>(kind) * kTracksOfKind + static_cast<int>(ends.size()),
                ends.size() == 1 ? name : name + " " + std::to_string(ends.size()));
    }
    *free = slice.end_ns;
    WriteSlice(slice, id,
               static_cast<int>(kind) * kTracksOfKind + static_cast<int>(free - ends.begin()) + 1);
  }
}

Json ChromeTrace::ArgumentsOf(const TimelineSlice& slice) const {
  Json args = Json::object();
  if (!slice.operation.empty()) args["operation"] = slice.operation;
  if (!slice.kind.empty()) args["kind"] = slice.kind;
  if (!slice.algorithm.empty()) args["algorithm"] = slice.algorithm;
  if (slice.tensor_count > 0) {
    args["bytes"] = slice.bytes;
    args["tensors"] = slice.tensors;
    if (slice.tensor_count > slice.tensors.size()) args["tensor_count"] = slice.tensor_count;
  }
  if (!slice.stages.empty()) {
    Json& stages = args["stages_us"] = Json::object();
    for (const auto& [name, at_ns] : slice.stages) stages[name] = Micros(at_ns);
  }
  if (slice.status != 0) {
    args["error"] = absl::StatusCodeToString(static_cast<absl::StatusCode>(slice.status));
  }
  if (slice.unfinished) args["unfinished"] = true;
  return args;
}

void ChromeTrace::WriteSlice(const TimelineSlice& slice, int process, int track) {
  const std::int64_t begin = std::max(slice.begin_ns, base_ns_);
  Emit({{"ph", "X"},
        {"pid", process},
        {"tid", track},
        {"ts", Micros(begin)},
        {"dur", InMicros(std::max(slice.end_ns, begin) - begin)},
        {"cat", kTrackNames[static_cast<std::size_t>(slice.track)]},
        {"name", slice.name},
        {"args", ArgumentsOf(slice)}});
  for (const TimelinePart& part : slice.parts) WritePart(part, process, track);
}

void ChromeTrace::WritePart(const TimelinePart& part, int process, int track) {
  const std::int64_t begin = std::max(part.begin_ns, base_ns_);
  if (part.end_ns <= begin) return;
  Emit({{"ph", "X"},
        {"pid", process},
        {"tid", track},
        {"ts", Micros(begin)},
        {"dur", InMicros(part.end_ns - begin)},
        {"cat", "stage"},
        {"name", part.name}});
}

}  // namespace

void WriteChromeTrace(const TraceRecord& record, const Timeline& timeline,
                      const std::function<void(absl::string_view)>& write) {
  ChromeTrace(record, timeline, write).Write();
}

}  // namespace ringd::cli
