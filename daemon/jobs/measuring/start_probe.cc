#include "daemon/jobs/measuring/start_probe.h"

#include "absl/strings/str_cat.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<Communicator>> MakeProbeCommunicator(Transport& transport,
                                                                    const v1::ProbedNodes& nodes,
                                                                    const ProbeTerms& terms) {
  if (nodes.node_names_size() != nodes.transport_addresses_size()) {
    return absl::InvalidArgumentError("names and addresses of different nodes");
  }
  CommunicatorSpec spec;
  spec.wire_id = nodes.wire_id();
  spec.self = NodeIndex(nodes.node_index());
  spec.addresses.assign(nodes.transport_addresses().begin(), nodes.transport_addresses().end());
  spec.node_names.assign(nodes.node_names().begin(), nodes.node_names().end());
  spec.share.weight = terms.weight;
  spec.key = std::string(AsText(KeyForWire(terms.job_key, spec.wire_id)));
  return transport.CreateCommunicator(spec);
}

std::string DescribeEnd(const Completion& completion, const Communicator& communicator) {
  const absl::Status health = communicator.health();
  return absl::StrCat("the probe ended: ", Name(completion.outcome), health.ok() ? "" : ", ",
                      health.message());
}

}  // namespace ringd
