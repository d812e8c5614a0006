#include "daemon/jobs/measuring/link_prober.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

namespace ringd {
namespace {

// A message that takes no longer than its round trip: the line is faster than can be told.
constexpr double kShortestSeconds = 1e-6;

v1::ProbedLink Describe(int node, const LinkTimes& times) {
  const double line = std::max(times.message_seconds - times.round_trip_seconds, kShortestSeconds);
  v1::ProbedLink link;
  link.set_node(static_cast<std::uint32_t>(node));
  link.set_latency_us(times.round_trip_seconds / 2 * 1e6);
  link.set_bytes_per_second(static_cast<double>(kLinkProbeBytes) / line);
  return link;
}

}  // namespace

LinkProber::LinkProber(std::unique_ptr<Communicator> communicator, int node_count, int self)
    : self_(self),
      times_(static_cast<std::size_t>(node_count)),
      communicator_(std::move(communicator)) {}

absl::StatusOr<std::unique_ptr<StartProbe>> LinkProber::Start(Transport& transport,
                                                              const v1::ProbedNodes& nodes,
                                                              const ProbeTerms& terms) {
  auto communicator = MakeProbeCommunicator(transport, nodes, terms);
  if (!communicator.ok()) return communicator.status();
  std::unique_ptr<LinkProber> prober(
      new LinkProber(*std::move(communicator), nodes.node_names_size(), nodes.node_index()));
  CollectiveRequest request;
  request.kind = CollectiveKind::kLinkProbe;
  request.data_type = DataType::kFloat64;
  request.element_count = prober->times_.size() * sizeof(LinkTimes) / sizeof(double);
  request.buffer = std::as_writable_bytes(std::span(prober->times_)).data();
  if (!prober->communicator_->TryPost(request)) {
    return absl::InternalError("the backend takes no probe");
  }
  return prober;
}

std::optional<v1::NodeMessage> LinkProber::Poll() {
  Completion completion;
  if (communicator_ == nullptr || communicator_->Poll({&completion, 1}) == 0) return std::nullopt;
  v1::NodeMessage message;
  v1::LinkReport& report = *message.mutable_link_report();
  if (completion.outcome == CollectiveOutcome::kDone) {
    for (std::size_t node = 0; node < times_.size(); ++node) {
      if (static_cast<int>(node) == self_) continue;
      *report.add_links() = Describe(static_cast<int>(node), times_[node]);
    }
  } else {
    report.set_error(DescribeEnd(completion, *communicator_));
  }
  // Nothing is in flight: this does not block.
  communicator_.reset();
  return message;
}

void LinkProber::Abort(absl::string_view reason) {
  if (communicator_ != nullptr) communicator_->Abort(reason);
}

}  // namespace ringd
