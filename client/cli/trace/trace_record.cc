#include "client/cli/trace/trace_record.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringd::cli {
namespace {

// Two clocks drift apart by less than so many nanoseconds in a second.
constexpr std::uint64_t kDriftPerSecond = 100'000;
constexpr std::uint64_t kSecond = 1'000'000'000;

std::vector<TraceEvent>* EventsOf(RecordedNode& node, int ring) {
  if (ring == 0) return &node.engine;
  const auto member = static_cast<std::size_t>(ring - 1);
  return member < node.ranks.size() ? &node.ranks[member].events : nullptr;
}

}  // namespace

std::string RecordedNode::NameOf(TracedPart part, std::uint32_t tensor) const {
  const auto found = tensors.find({part, tensor});
  if (found != tensors.end() && !found->second.empty()) {
    return absl::StrCat(found->second, Behind(part));
  }
  return IsTracedOrdered(tensor)
             ? absl::StrCat("operation ", tensor - kFirstTracedOrdered, Behind(part))
             : absl::StrCat("tensor ", tensor, Behind(part));
}

std::string RecordedNode::Behind(TracedPart part) const {
  if (part.is_all_ranks()) return "";
  const auto found = communicators.find(part);
  return found == communicators.end() ? absl::StrCat(" of communicator ", part.number())
                                      : absl::StrCat(" of communicator '", found->second.name, "'");
}

bool RecordedNode::Has(TracedPart part, std::size_t member) const {
  if (part.is_all_ranks()) return true;
  const auto found = communicators.find(part);
  if (found == communicators.end()) return false;
  const std::vector<std::size_t>& members = found->second.members;
  return std::find(members.begin(), members.end(), member) != members.end();
}

void TraceRecord::Add(const v1::TraceReply& reply) {
  if (nodes_.empty()) {
    job_id_ = reply.job_id();
    generation_ = reply.generation();
    asked_unix_offset_ns_ = reply.unix_offset_ns();
    for (const v1::TracedNode& traced : reply.nodes()) {
      RecordedNode& node = nodes_.emplace_back();
      node.name = traced.name();
      for (const v1::TracedRank& rank : traced.ranks()) {
        node.ranks.push_back({rank.rank(), rank.pid(), {}});
      }
    }
    positions_.resize(nodes_.size());
    if (reply.node_index() > 0 && reply.node_index() < reply.nodes_size()) {
      asked_node_ = static_cast<std::size_t>(reply.node_index());
    }
  }
  last_ns_ = reply.now_ns();
  if (++replies_ <= 2) first_ns_ = last_ns_;
  more_ = false;
  for (std::size_t i = 0; i < nodes_.size() && static_cast<int>(i) < reply.nodes_size(); ++i) {
    const v1::TracedNode& traced = reply.nodes(static_cast<int>(i));
    nodes_[i].behind = !traced.has_trace();
    if (!traced.has_trace()) continue;
    AddNode(traced.trace(), nodes_[i]);
    positions_[i].clear_rings();
    for (const v1::TraceRing& ring : traced.trace().rings()) {
      positions_[i].add_rings(ring.next());
      nodes_[i].behind = nodes_[i].behind || ring.more();
    }
    more_ = more_ || nodes_[i].behind;
  }
}

void TraceRecord::AddNode(const v1::NodeTrace& trace, RecordedNode& node) {
  node.answered = true;
  for (const v1::TracedTensor& tensor : trace.tensors()) {
    node.tensors.insert_or_assign({TracedPart::OfNumber(tensor.part()), tensor.number()},
                                  tensor.name());
  }
  for (const v1::TracedCommunicator& communicator : trace.communicators()) {
    RecordedCommunicator& recorded = node.communicators[TracedPart::OfNumber(communicator.part())];
    recorded.name = communicator.name();
    recorded.members.assign(communicator.members().begin(), communicator.members().end());
  }
  if (trace.clock_known() &&
      (!node.clock_known || trace.clock_uncertainty_ns() < node.clock_uncertainty_ns)) {
    node.clock_known = true;
    node.clock_offset_ns = trace.clock_offset_ns();
    node.clock_uncertainty_ns = trace.clock_uncertainty_ns();
  }
  for (int i = 0; i < trace.rings_size(); ++i) {
    const v1::TraceRing& ring = trace.rings(i);
    node.lost += ring.lost();
    std::vector<TraceEvent>* const events = EventsOf(node, i);
    if (events == nullptr) continue;
    const std::string& bytes = ring.events();
    for (std::size_t at = 0; at + sizeof(TraceEvent) <= bytes.size(); at += sizeof(TraceEvent)) {
      if (full()) return;
      TraceEvent event;
      std::memcpy(&event, bytes.data() + at, sizeof(event));
      if (static_cast<int>(event.stage) >= kTraceStageCount) continue;
      if (event.member >= node.ranks.size()) continue;
      events->push_back(event);
      ++event_count_;
    }
  }
}

void TraceRecord::CutAtEnd() {
  for (RecordedNode& node : nodes_) {
    const auto cut = [&](std::vector<TraceEvent>& events) {
      event_count_ -= std::erase_if(
          events, [&](const TraceEvent& event) { return node.TimeOf(event.at_ns) > end_ns(); });
    };
    cut(node.engine);
    for (RecordedRank& rank : node.ranks) cut(rank.events);
  }
}

v1::TraceRequest TraceRecord::NextRequest() const {
  v1::TraceRequest request;
  request.set_job_id(job_id_);
  for (const v1::TracePosition& position : positions_) *request.add_positions() = position;
  return request;
}

std::int64_t TraceRecord::AskedTime(std::uint64_t at_ns) const noexcept {
  return nodes_.empty() ? 0 : nodes_[asked_node_].TimeOf(at_ns);
}

std::int64_t TraceRecord::begin_ns() const noexcept { return AskedTime(first_ns_); }
std::int64_t TraceRecord::end_ns() const noexcept { return AskedTime(last_ns_); }

std::int64_t TraceRecord::unix_offset_ns() const noexcept {
  const std::int64_t clock_offset_ns = nodes_.empty() ? 0 : nodes_[asked_node_].clock_offset_ns;
  return WrappingDifference(asked_unix_offset_ns_, clock_offset_ns);
}

std::uint64_t TraceRecord::UncertaintyOf(const RecordedNode& node) const noexcept {
  // The coordinator's own clock is certain.
  if (node.clock_uncertainty_ns == 0) return 0;
  return node.clock_uncertainty_ns + (last_ns_ - first_ns_) / kSecond * kDriftPerSecond +
         (last_ns_ - first_ns_) % kSecond * kDriftPerSecond / kSecond;
}

}  // namespace ringd::cli
