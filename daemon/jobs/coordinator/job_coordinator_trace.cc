// Traces: the coordinator has every node's stream, so questions and answers pass through it. It
// keeps nothing of them.
#include <algorithm>
#include <utility>

#include "daemon/jobs/coordinator/job_coordinator.h"

namespace ringd {
namespace {

// Events in the answers of all nodes together (32 bytes each), and the most and the least of one.
constexpr std::size_t kMostEvents = 128 * 1024;
constexpr std::size_t kMostOfNode = 16 * 1024;
constexpr std::size_t kLeastOfNode = 256;
// An answer that no sound node sends is not passed on.
constexpr std::size_t kMostAnswerBytes = std::size_t{2} << 20;

}  // namespace

void JobCoordinator::AskForTraces(const Node& asker, const v1::TraceQuestion& question) {
  const std::size_t most = std::clamp(kMostEvents / nodes_.size(), kLeastOfNode, kMostOfNode);
  for (const auto& [link, node] : nodes_) {
    v1::CoordinatorMessage message;
    v1::TraceInquiry& inquiry = *message.mutable_trace_inquiry();
    inquiry.set_asker(asker.index.value());
    inquiry.set_number(question.number());
    inquiry.set_most_events(static_cast<std::uint32_t>(most));
    if (node.index.value() < question.positions_size()) {
      *inquiry.mutable_position() = question.positions(node.index.value());
    }
    sender_->SendToNode(link, std::move(message));
  }
}

void JobCoordinator::PassTraceOn(const Node& from, v1::TraceAnswer answer) {
  if (answer.ByteSizeLong() > kMostAnswerBytes) return;
  for (const auto& [link, node] : nodes_) {
    if (node.index.value() != answer.asker()) continue;
    v1::CoordinatorMessage message;
    *message.mutable_trace_answer() = std::move(answer);
    message.mutable_trace_answer()->set_node(from.index.value());
    sender_->SendToNode(link, std::move(message));
    return;
  }
}

}  // namespace ringd
