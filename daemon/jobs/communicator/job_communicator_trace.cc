// What JobCommunicator tells of the times of its operations; nothing here changes anything.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/communicator/job_communicator.h"

namespace ringd {
namespace {

// A trace begins with so many events of each ring: what is under way began there.
constexpr std::uint64_t kBacklog = 2048;
// Tensors named in one answer. Names have 512 bytes at most.
constexpr std::size_t kMostNames = 1024;

std::string AsBytes(const std::vector<TraceEvent>& events) {
  return std::string(reinterpret_cast<const char*>(events.data()),
                     events.size() * sizeof(TraceEvent));
}

}  // namespace

std::string JobCommunicator::NameOfTraced(std::uint32_t tensor) const {
  if (way_.local != nullptr) return way_.local->NameOf(tensor).value_or("");
  if (tensor >= numbered_.size() || !numbered_[tensor]) return "";
  return scheduler_.NameOf(TensorHandle(tensor));
}

// Of a rank's event: it may be what the library writes. No more is known, and no more needed to
// show it.
bool JobCommunicator::IsCredible(const TraceEvent& event, std::uint64_t now_ns) const {
  const bool local = way_.local != nullptr;
  switch (event.stage) {
    case TraceStage::kSubmitted:
    case TraceStage::kCompleted:
    case TraceStage::kReduced:
      if (!local) return false;
      break;
    case TraceStage::kRankExchange:
      if (local) return false;
      break;
    case TraceStage::kWaited:
      break;
    default:
      return false;
  }
  const bool names_one = local || event.stage != TraceStage::kWaited;
  if (names_one && NameOfTraced(event.tensor).empty()) return false;
  return event.at_ns <= now_ns && (!HasDuration(event.stage) || event.value <= event.at_ns);
}

void JobCommunicator::ReadTrace(const v1::TracePosition& position, std::size_t most,
                                v1::NodeTrace* out) const {
  const std::uint64_t now_ns = MonotonicNanos();
  std::vector<TraceRingView> views = {trace_.ring()};
  for (const auto& member : members_) views.push_back(member->trace_ring());
  std::set<std::uint32_t> named;
  std::vector<TraceEvent> events;
  for (std::size_t i = 0; i < views.size(); ++i) {
    v1::TraceRing& ring = *out->add_rings();
    if (views[i].header == nullptr) continue;
    const TraceReader reader(views[i]);
    const std::uint64_t written = reader.written();
    const bool fresh = position.rings().empty();
    const std::uint64_t from = !fresh && static_cast<int>(i) < position.rings_size()
                                   ? position.rings(static_cast<int>(i))
                                   : written - std::min(written, fresh ? kBacklog : written);
    events.clear();
    // What one ring leaves of its share the others may have.
    const std::size_t share = most / (views.size() - i);
    const TraceRead read = reader.Read(from, share, events);
    most -= events.size();
    if (i > 0) {
      std::erase_if(events, [&](const TraceEvent& event) { return !IsCredible(event, now_ns); });
      for (TraceEvent& event : events) event.member = static_cast<std::uint8_t>(i - 1);
    }
    for (const TraceEvent& event : events) {
      if (event.tensor != kNoTracedTensor && named.size() < kMostNames) named.insert(event.tensor);
    }
    ring.set_next(read.next);
    ring.set_lost(fresh ? 0 : read.lost);
    ring.set_more(read.more);
    ring.set_events(AsBytes(events));
  }
  for (const std::uint32_t tensor : named) {
    v1::TracedTensor& entry = *out->add_tensors();
    entry.set_number(tensor);
    entry.set_name(NameOfTraced(tensor));
  }
}

}  // namespace ringd
