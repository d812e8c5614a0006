// The transport of an engine, as its settings want it.
#ifndef RINGD_DAEMON_ENGINE_PROCESS_ENGINE_TRANSPORT_H_
#define RINGD_DAEMON_ENGINE_PROCESS_ENGINE_TRANSPORT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/tcp/wire_sockets.h"
#include "daemon/config/config.h"

namespace ringd {

// `config` is complete (ResolveNetwork). `wires` and `shares` are for the TCP backend, and may be
// null. Null: all ranks of a job must be on this node.
//   What the backend says.
absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const Config& config,
                                                         std::unique_ptr<WireSockets> wires,
                                                         LineShares* shares);

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PROCESS_ENGINE_TRANSPORT_H_
