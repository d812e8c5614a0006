#include "daemon/jobs/link_prober.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

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

absl::StatusOr<std::unique_ptr<LinkProber>> LinkProber::Start(Transport& transport,
                                                              const v1::LinkProbe& probe,
                                                              std::uint32_t weight) {
  if (probe.node_names_size() != probe.transport_addresses_size()) {
    return absl::InvalidArgumentError("names and addresses of different nodes");
  }
  CommunicatorSpec spec;
  spec.wire_id = probe.wire_id();
  spec.self = NodeIndex(probe.node_index());
  spec.addresses.assign(probe.transport_addresses().begin(), probe.transport_addresses().end());
  spec.node_names.assign(probe.node_names().begin(), probe.node_names().end());
  spec.weight = weight;
  absl::StatusOr<std::unique_ptr<Communicator>> communicator = transport.CreateCommunicator(spec);
  if (!communicator.ok()) return communicator.status();
  std::unique_ptr<LinkProber> prober(
      new LinkProber(*std::move(communicator), probe.node_names_size(), probe.node_index()));
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

std::optional<v1::LinkReport> LinkProber::Poll() {
  Completion completion;
  if (communicator_ == nullptr || communicator_->Poll({&completion, 1}) == 0) return std::nullopt;
  v1::LinkReport report;
  if (completion.outcome == CollectiveOutcome::kDone) {
    for (std::size_t node = 0; node < times_.size(); ++node) {
      if (static_cast<int>(node) == self_) continue;
      *report.add_links() = Describe(static_cast<int>(node), times_[node]);
    }
  } else {
    const absl::Status health = communicator_->health();
    report.set_error(absl::StrCat("the probe ended: ", Name(completion.outcome),
                                  health.ok() ? "" : ", ", health.message()));
  }
  // Nothing is in flight: this does not block.
  communicator_.reset();
  return report;
}

void LinkProber::Abort(absl::string_view reason) {
  if (communicator_ != nullptr) communicator_->Abort(reason);
}

}  // namespace ringd
