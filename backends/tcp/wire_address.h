// What a node's address on the wire looks like, and which part of it a connection goes to.
#ifndef RINGD_BACKENDS_TCP_WIRE_ADDRESS_H_
#define RINGD_BACKENDS_TCP_WIRE_ADDRESS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringd {

// "10.0.0.2:7117,10.1.0.2:7117": a host and port for each of the node's data interfaces, in the
// order of the setting. Nodes are expected to name their interfaces in one order, so that the first
// of one and the first of another have a network in common.
inline constexpr std::size_t kMostWireInterfaces = 8;

std::string JoinWireAddress(const std::vector<std::string>& host_ports);
// Of one to kMostWireInterfaces parts, each "host:port" or "[host]:port", a host and a port that
// may exist.
bool IsWireAddress(absl::string_view address);

// The host of its first interface. Requirement: it is a wire address.
absl::string_view FirstHostOf(absl::string_view address);
// How many interfaces two nodes have for each other. At least one.
std::size_t CommonInterfaces(absl::string_view one, absl::string_view other);
// The "host:port" to dial for a stream. Stream 0, which is the urgent one, goes to the first
// interface; those for bulk, from 1 on, take turns.
std::string AddressForStream(absl::string_view own, absl::string_view peer, std::uint32_t stream);

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_WIRE_ADDRESS_H_
