#include "daemon/config/link_state.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/network_identity.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

using AddressList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

// Null: they can't be asked for.
AddressList LocalAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) list = nullptr;
  return {list, &::freeifaddrs};
}

// The `bytes` at `offset` of a socket address are the address itself.
std::string NetworkText(const ifaddrs& entry, std::size_t offset, std::size_t bytes) {
  std::array<unsigned char, 16> network{};
  int prefix = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto* const address = reinterpret_cast<const unsigned char*>(entry.ifa_addr);
    const auto* const mask = reinterpret_cast<const unsigned char*>(entry.ifa_netmask);
    network[i] = address[offset + i] & mask[offset + i];
    prefix += std::popcount(mask[offset + i]);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(entry.ifa_addr->sa_family, network.data(), text.data(), text.size());
  return absl::StrCat(text.data(), "/", prefix);
}

// Nothing: it has no such address, or one that means nothing on other nodes.
std::optional<std::string> NetworkOf(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr) return std::nullopt;
  if (entry.ifa_addr->sa_family == AF_INET) {
    return NetworkText(entry, offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
  }
  if (entry.ifa_addr->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 address{};
  std::memcpy(&address, entry.ifa_addr, sizeof(address));
  if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) return std::nullopt;
  return NetworkText(entry, offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr));
}

// Null: it has one that means something on other nodes, or can't be asked.
const char* WhyNoAddress(const std::string& interface) {
  const AddressList list = LocalAddresses();
  if (list == nullptr) return nullptr;
  const char* why = "has no address";
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || interface != entry->ifa_name) continue;
    if (entry->ifa_addr->sa_family == AF_INET) return nullptr;
    if (entry->ifa_addr->sa_family != AF_INET6) continue;
    sockaddr_in6 address{};
    std::memcpy(&address, entry->ifa_addr, sizeof(address));
    if (!IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) return nullptr;
    why = "has no address but a link-local one";
  }
  return why;
}

// Null: it is ready, or can't be asked.
const char* WhyNotReady(const std::string& interface) {
  if (IsRdmaDevice(interface)) return nullptr;
  ifreq request{};
  if (interface.size() >= sizeof(request.ifr_name)) return "does not exist";
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return nullptr;
  if (::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) {
    return errno == ENODEV ? "does not exist" : nullptr;
  }
  if ((request.ifr_flags & IFF_UP) == 0) return "is down";
  // The kernel's word for a carrier, or for a driver that does not know of any.
  if ((request.ifr_flags & IFF_RUNNING) == 0) return "has no carrier";
  return WhyNoAddress(interface);
}

}  // namespace

std::vector<std::string> LinksOf(const Config& config) {
  std::vector<std::string> links;
  const auto add = [&links](const std::string& name) {
    if (name.empty() || name == "lo") return;
    if (std::find(links.begin(), links.end(), name) == links.end()) links.push_back(name);
  };
  add(config.peer_interface);
  if (config.backend == "none") return links;
  for (const std::string& name : config.data_interfaces) add(name);
  return links;
}

std::string DescribeUnreadyLinks(const std::vector<std::string>& interfaces) {
  std::string problems;
  for (const std::string& interface : interfaces) {
    const char* const why = WhyNotReady(interface);
    if (why == nullptr) continue;
    absl::StrAppend(&problems, problems.empty() ? "" : "; ", interface, " ", why);
  }
  return problems;
}

std::vector<InterfaceNetwork> NetworksOf(const std::vector<std::string>& interfaces) {
  std::vector<InterfaceNetwork> networks;
  const AddressList list = LocalAddresses();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (std::find(interfaces.begin(), interfaces.end(), entry->ifa_name) == interfaces.end()) {
      continue;
    }
    if (auto network = NetworkOf(*entry)) {
      networks.push_back({entry->ifa_name, *std::move(network)});
    }
  }
  return networks;
}

std::string DescribeSharedNetworks(const std::vector<InterfaceNetwork>& networks) {
  std::map<std::string, std::vector<std::string>> interfaces;  // by network
  for (const InterfaceNetwork& entry : networks) {
    std::vector<std::string>& known = interfaces[entry.network];
    if (std::find(known.begin(), known.end(), entry.interface) == known.end()) {
      known.push_back(entry.interface);
    }
  }
  std::string shared;
  for (const auto& [network, names] : interfaces) {
    if (names.size() < 2) continue;
    absl::StrAppend(&shared, shared.empty() ? "" : "; ", absl::StrJoin(names, " and "),
                    " are both in ", network);
  }
  return shared;
}

}  // namespace ringd
