#include "daemon/supervisor/data_addresses.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "backends/tcp/wire_address.h"
#include "daemon/config/host_port.h"
#include "daemon/config/network_identity.h"

namespace ringd {

absl::StatusOr<std::string> OpenDataAddresses(const Config& config, Door* door,
                                              DoorPurpose purpose) {
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
  return JoinWireAddress(addresses);
}

}  // namespace ringd
