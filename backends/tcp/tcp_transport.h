// Host memory between nodes, over TCP connections of our own.
#ifndef RINGD_BACKENDS_TCP_TCP_TRANSPORT_H_
#define RINGD_BACKENDS_TCP_TCP_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/tcp/wire_sockets.h"

namespace ringd {

// Makes a Transport over the connections that `sockets` brings. Of the options it takes
// streams_per_neighbour (how many connections carry bulk; kAutoStreams is one for each interface),
// congestion_control and line_shares; where to listen is the sockets' matter.
//   kInvalidArgument: an option makes no sense; the message names it.
//   kResourceExhausted: no descriptors are left.
absl::StatusOr<std::unique_ptr<Transport>> CreateTcpTransport(const TransportOptions& options,
                                                              std::unique_ptr<WireSockets> sockets);

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_TRANSPORT_H_
