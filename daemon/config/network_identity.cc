#include "daemon/config/network_identity.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/host_port.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool ipv4 = false;
};

// The numeric form; empty for families other than IP.
std::string NumericAddress(const sockaddr* address) {
  if (address == nullptr) return "";
  socklen_t length = 0;
  if (address->sa_family == AF_INET) length = sizeof(sockaddr_in);
  if (address->sa_family == AF_INET6) length = sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  if (length == 0 ||
      getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  return text;
}

// IPv4 first, otherwise as the kernel lists them. Interfaces that are down are absent.
absl::StatusOr<std::vector<InterfaceAddress>> ListAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const std::string address = NumericAddress(entry->ifa_addr);
    if (address.empty() || (entry->ifa_flags & IFF_UP) == 0) continue;
    addresses.push_back({entry->ifa_name, address, entry->ifa_addr->sa_family == AF_INET});
  }
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const InterfaceAddress& entry) { return entry.ipv4; });
  return addresses;
}

absl::Status NoSuchInterface(const char* key, const std::string& name,
                             const std::vector<InterfaceAddress>& addresses) {
  const auto describe = [](std::string* out, const InterfaceAddress& entry) {
    absl::StrAppend(out, entry.interface, " (", entry.address, ")");
  };
  return absl::NotFoundError(absl::StrCat(
      key, ": no interface '", name,
      "' is up with an address; there are: ", absl::StrJoin(addresses, ", ", describe)));
}

// The numeric addresses that `host` stands for; empty if it can't be resolved.
std::vector<std::string> ResolveHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    addresses.push_back(NumericAddress(entry->ai_addr));
  }
  return addresses;
}

// Or a zone: a colon, and no IPv6 address.
bool HasPort(const std::string& host) {
  in6_addr address{};
  return absl::StrContains(host, ':') && ::inet_pton(AF_INET6, host.c_str(), &address) != 1;
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

std::vector<std::string> InterfacesOf(const std::string& host,
                                      const std::vector<InterfaceAddress>& addresses) {
  if (IsLoopback(host)) return {"lo"};
  if (IsWildcard(host)) return {};
  for (const std::string& resolved : ResolveHost(host)) {
    for (const InterfaceAddress& entry : addresses) {
      if (entry.address == resolved) return {entry.interface};
    }
  }
  return {};
}

// Without those that mean nothing on other nodes.
std::vector<std::string> KeepReachable(std::vector<std::string> addresses, bool loopback_will_do) {
  // One with a zone ("fe80::1%eth0") means nothing elsewhere.
  std::erase_if(addresses, [&](const std::string& address) {
    return absl::StrContains(address, '%') || (IsLoopback(address) && !loopback_will_do);
  });
  return addresses;
}

// Of an interface's addresses, the one by which other nodes know this one; else the first.
std::string ChooseAddress(const std::vector<std::string>& candidates,
                          const std::vector<std::string>& advertised) {
  const auto known = std::find_first_of(candidates.begin(), candidates.end(), advertised.begin(),
                                        advertised.end());
  return known == candidates.end() ? candidates.front() : *known;
}

std::vector<std::string> AddressesOf(const std::string& interface,
                                     const std::vector<InterfaceAddress>& addresses) {
  std::vector<std::string> found;
  for (const InterfaceAddress& entry : addresses) {
    if (entry.interface == interface) found.push_back(entry.address);
  }
  return found;
}

// An RDMA device is named with its port, an interface without one.
bool NamesPort(const std::string& data_interface) { return absl::StrContains(data_interface, ':'); }

absl::Status ChooseBackend(Config& config, bool any_rdma) {
  if (config.backend == "auto") {
    config.backend = any_rdma || config.transports != kDefaultTransports ? "ucx" : "tcp";
  }
  if (!any_rdma) return absl::OkStatus();
  if (config.backend == "tcp") {
    return absl::InvalidArgumentError(
        "data_interfaces has an RDMA device, which backend = \"tcp\" can't use: leave backend out, "
        "or "
        "set it to \"ucx\"");
  }
  if (config.transports == kDefaultTransports) config.transports = "all";
  return absl::OkStatus();
}

}  // namespace

bool IsRdmaDevice(absl::string_view name, absl::string_view rdma_devices) {
  const absl::string_view device = name.substr(0, name.find(':'));
  if (device.empty() || device == "." || device == ".." || absl::StrContains(device, '/')) {
    return false;
  }
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(rdma_devices, "/", device), error);
}

absl::Status ResolveNetwork(Config& config, absl::string_view rdma_devices) {
  absl::StatusOr<HostPort> peer = ParseHostPort(config.peer_address);
  if (!peer.ok()) return peer.status();
  const absl::StatusOr<std::vector<InterfaceAddress>> addresses = ListAddresses();
  if (!addresses.ok()) return addresses.status();
  const auto find = [&](const std::string& name) {
    return std::find_if(addresses->begin(), addresses->end(),
                        [&](const InterfaceAddress& entry) { return entry.interface == name; });
  };

  if (config.node_name.empty()) config.node_name = HostName();
  if (!config.peer_interface.empty()) {
    const auto found = find(config.peer_interface);
    if (found == addresses->end()) {
      return NoSuchInterface("peer_interface", config.peer_interface, *addresses);
    }
    peer->host = found->address;
    config.peer_address = FormatHostPort(*peer);
  }
  if (IsWildcard(config.advertised_host) || HasPort(config.advertised_host)) {
    return absl::InvalidArgumentError(
        absl::StrCat("advertised_host = \"", config.advertised_host,
                     "\" is refused: it has to be an address of this node, or a name that stands "
                     "for one, without a port"));
  }
  if (config.advertised_host.empty()) {
    config.advertised_host = IsWildcard(peer->host) ? HostName() : peer->host;
  }
  bool any_rdma = false;
  for (std::string& name : config.data_interfaces) {
    if (IsRdmaDevice(name, rdma_devices)) {
      any_rdma = true;
      if (!NamesPort(name)) name += ":1";
    } else if (find(name) == addresses->end()) {
      return NoSuchInterface("data_interfaces", name, *addresses);
    } else if (NamesPort(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data_interfaces: '", name, "' is the label of an address; name '",
                       name.substr(0, name.find(':')), "', whose it is"));
    }
  }
  if (config.data_interfaces.empty()) {
    config.data_interfaces = InterfacesOf(peer->host, *addresses);
  }
  const auto is_one_of_several = [&](const std::string& name) {
    return KeepReachable(AddressesOf(name, *addresses), true).size() > 1;
  };
  std::vector<std::string> interfaces = config.data_interfaces;
  std::erase_if(interfaces, NamesPort);
  if (interfaces.empty() || std::any_of(interfaces.begin(), interfaces.end(), is_one_of_several)) {
    config.advertised_addresses = ResolveHost(config.advertised_host);
  }
  return ChooseBackend(config, any_rdma);
}

std::vector<std::string> FindPeerHosts(const Config& config) {
  if (config.peer_interface.empty()) return {};
  const absl::StatusOr<std::vector<InterfaceAddress>> addresses = ListAddresses();
  if (!addresses.ok()) return {};
  return KeepReachable(AddressesOf(config.peer_interface, *addresses), true);
}

absl::StatusOr<std::vector<std::string>> FindDataHosts(const Config& config) {
  const absl::StatusOr<HostPort> peer = ParseHostPort(config.peer_address);
  if (!peer.ok()) return peer.status();
  const bool loopback_will_do = IsLoopback(peer->host);
  std::vector<std::string> interfaces = config.data_interfaces;
  std::erase_if(interfaces, NamesPort);
  if (interfaces.empty()) {
    const auto known = KeepReachable(config.advertised_addresses, loopback_will_do);
    if (!known.empty()) return std::vector{known.front()};
    return absl::NotFoundError(absl::StrCat("advertised_host '", config.advertised_host,
                                            "' stands for no address that other nodes can reach"));
  }
  const absl::StatusOr<std::vector<InterfaceAddress>> addresses = ListAddresses();
  if (!addresses.ok()) return addresses.status();
  std::vector<std::string> hosts;
  for (const std::string& name : interfaces) {
    const auto candidates = KeepReachable(AddressesOf(name, *addresses), loopback_will_do);
    if (candidates.empty()) {
      return absl::NotFoundError(
          absl::StrCat("interface ", name, " has no address that other nodes can reach"));
    }
    std::string host = ChooseAddress(candidates, config.advertised_addresses);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
      hosts.push_back(std::move(host));
    }
  }
  return hosts;
}

std::string DescribeAddresses(const std::vector<std::string>& interfaces) {
  const absl::StatusOr<std::vector<InterfaceAddress>> addresses = ListAddresses();
  if (!addresses.ok()) return "";
  std::set<std::string> described;
  for (const std::string& name : interfaces) {
    for (const std::string& address : KeepReachable(AddressesOf(name, *addresses), true)) {
      described.insert(absl::StrCat(name, " ", address));
    }
  }
  return absl::StrJoin(described, ", ");
}

}  // namespace ringd
