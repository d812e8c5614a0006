// What every backend with WireCommunicators asks of a CommunicatorSpec.
#ifndef RINGD_BACKENDS_COLLECTIVES_WIRE_SPEC_H_
#define RINGD_BACKENDS_COLLECTIVES_WIRE_SPEC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/communicator.h"
#include "proto/types/ids.h"

namespace ringd {

// For error texts: the node's name, or "node 3" where the spec has none.
std::string NodeNameOf(const CommunicatorSpec& spec, std::size_t node);

// `is_address` says whether a node's address can be one; `kind` names such addresses ("UCX").
//   kInvalidArgument: self is none of the nodes, or an address is malformed; the message names it.
absl::Status CheckSpec(const CommunicatorSpec& spec, bool (*is_address)(absl::string_view),
                       absl::string_view kind);

// The nodes after and before `spec.self` in the ring, each once. Requirement: CheckSpec() was OK.
std::vector<NodeIndex> RingNeighbours(const CommunicatorSpec& spec);

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_WIRE_SPEC_H_
