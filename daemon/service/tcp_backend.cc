#include "daemon/service/tcp_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/tcp/tcp_transport.h"
#include "backends/tcp/wire_address.h"
#include "daemon/config/host_port.h"
#include "daemon/config/network_identity.h"
#include "daemon/door/wire_door.h"

namespace ringd {

absl::StatusOr<std::unique_ptr<WireSockets>> OpenDataDoor(const Config& config, Door* door,
                                                          DoorPurpose purpose,
                                                          bool has_cluster_key) {
  absl::StatusOr<std::vector<std::string>> hosts = FindDataHosts(config);
  if (!hosts.ok()) return hosts.status();
  // What ranks exchange themselves is small, and waited for: one interface.
  if (purpose == DoorPurpose::kExchange) hosts->resize(1);
  if (hosts->size() > kMostWireInterfaces) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_interfaces: TCP takes ", kMostWireInterfaces, " at most, not ", hosts->size()));
  }
  const absl::StatusOr<HostPort> listening = ParseHostPort(door->address());
  if (!listening.ok()) return listening.status();
  std::vector<std::string> addresses;
  for (std::string& host : *hosts) {
    if (absl::Status status = door->AlsoListenOn(host); !status.ok()) return status;
    addresses.push_back(FormatHostPort({std::move(host), listening->port}));
  }
  WireDoorOptions options;
  options.purpose = purpose;
  options.local_address = JoinWireAddress(addresses);
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
