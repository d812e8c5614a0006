#include "daemon/config/link_state.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/config/network_identity.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// Null: it has one that means something on other nodes, or can't be asked.
const char* WhyNoAddress(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return nullptr;
  const char* why = "has no address";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
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

}  // namespace ringd
