// What carries data between nodes through the door: ringd's own wire over TCP, and the connections
// of rank exchanges.
#ifndef RINGD_DAEMON_SERVICE_TCP_BACKEND_H_
#define RINGD_DAEMON_SERVICE_TCP_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/tcp/wire_sockets.h"
#include "daemon/config/config.h"
#include "daemon/door/door.h"
#include "proto/door/door_message.h"

namespace ringd {

// Other nodes reach the door for data on data_interfaces, where it listens too from now on; for the
// exchange between ranks on the first of them.
// `door` outlives what is returned.
//   kNotFound: this node has no address that others could reach; the message names the setting.
//     Else what the kernel says.
absl::StatusOr<std::unique_ptr<WireSockets>> OpenDataDoor(const Config& config, Door* door,
                                                          DoorPurpose purpose,
                                                          bool has_cluster_key);
absl::StatusOr<std::unique_ptr<Transport>> MakeTcpBackend(const Config& config,
                                                          const TransportOptions& options,
                                                          Door* door, bool has_cluster_key);

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_TCP_BACKEND_H_
