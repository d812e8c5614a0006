#include "daemon/service/tcp_backend.h"

#include <utility>

#include "backends/tcp/tcp_transport.h"
#include "daemon/config/host_port.h"
#include "daemon/config/network_identity.h"
#include "daemon/door/wire_door.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<WireSockets>> OpenDataDoor(const Config& config, Door* door,
                                                          DoorPurpose purpose,
                                                          bool has_cluster_key) {
  absl::StatusOr<std::string> host = FindDataHost(config);
  if (!host.ok()) return host.status();
  const absl::StatusOr<HostPort> listening = ParseHostPort(door->address());
  if (!listening.ok()) return listening.status();
  if (absl::Status status = door->AlsoListenOn(*host); !status.ok()) return status;
  WireDoorOptions options;
  options.purpose = purpose;
  options.local_address = FormatHostPort({*std::move(host), listening->port});
  options.flags = has_cluster_key ? kDoorHasClusterKey : 0;
  absl::StatusOr<std::unique_ptr<WireDoor>> opened = WireDoor::Create(door, options);
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<WireSockets>(*std::move(opened));
}

absl::StatusOr<std::unique_ptr<Transport>> MakeTcpBackend(const Config& config,
                                                          const TransportOptions& options,
                                                          Door* door, bool has_cluster_key) {
  absl::StatusOr<std::unique_ptr<WireSockets>> wires =
      OpenDataDoor(config, door, DoorPurpose::kWire, has_cluster_key);
  if (!wires.ok()) return wires.status();
  return CreateTcpTransport(options, *std::move(wires));
}

}  // namespace ringd
