#include "daemon/jobs/tracing/trace_gatherings.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {

TraceGatherings::~TraceGatherings() { Fail(absl::CancelledError("the job has ended")); }

absl::StatusOr<v1::NodeMessage> TraceGatherings::Begin(const v1::TraceRequest& request,
                                                       v1::TraceReply reply, Clock::time_point now,
                                                       Done done) {
  if (gatherings_.size() >= kMost) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job '", request.job_id(), "' is being traced by ", kMost, " others on this node"));
  }
  v1::NodeMessage message;
  v1::TraceQuestion& question = *message.mutable_trace_question();
  question.set_number(next_number_);
  // One for each node, with its rings, whatever was asked with.
  for (int node = 0; node < reply.nodes_size(); ++node) {
    v1::TracePosition* const position = question.add_positions();
    if (node >= request.positions_size()) continue;
    // Its engine's ring, and one of each rank.
    const int rings =
        std::min(request.positions(node).rings_size(), 1 + reply.nodes(node).ranks_size());
    for (int ring = 0; ring < rings; ++ring)
      position->add_rings(request.positions(node).rings(ring));
  }
  gatherings_.push_back({next_number_++, now + kPatience, std::move(reply), std::move(done)});
  return message;
}

void TraceGatherings::OnAnswer(v1::TraceAnswer answer) {
  const auto found =
      std::find_if(gatherings_.begin(), gatherings_.end(),
                   [&](const Gathering& gathering) { return gathering.number == answer.number(); });
  if (found == gatherings_.end() || answer.node() < 0 ||
      answer.node() >= found->reply.nodes_size()) {
    return;
  }
  *found->reply.mutable_nodes(answer.node())->mutable_trace() = std::move(*answer.mutable_trace());
  const auto& nodes = found->reply.nodes();
  const bool whole = std::all_of(nodes.begin(), nodes.end(),
                                 [](const v1::TracedNode& node) { return node.has_trace(); });
  if (!whole) return;
  Gathering gathering = std::move(*found);
  gatherings_.erase(found);
  gathering.done(absl::OkStatus(), std::move(gathering.reply));
}

void TraceGatherings::EndLate(Clock::time_point now) {
  for (auto it = gatherings_.begin(); it != gatherings_.end();) {
    if (now < it->deadline) {
      ++it;
      continue;
    }
    Gathering gathering = std::move(*it);
    it = gatherings_.erase(it);
    gathering.done(absl::OkStatus(), std::move(gathering.reply));
  }
}

void TraceGatherings::Fail(const absl::Status& why) {
  std::list<Gathering> ended = std::move(gatherings_);
  gatherings_.clear();
  for (Gathering& gathering : ended) gathering.done(why, {});
}

}  // namespace ringd
