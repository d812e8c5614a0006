#include "backends/tcp/tcp_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/socket_options.h"

namespace ringd {
namespace {

// Sooner than SetUpConnection says: an idle line, too, is to notice within its 40 s that the other
// host is gone.
constexpr int kKeepAliveAfterSeconds = 10;
constexpr int kKeepAliveEverySeconds = 5;

void Set(int fd, int level, int option, int value) noexcept {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

// The address in a socket's name, without the port; empty for what is no IP address.
std::string HostOf(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  }
  if (bytes == nullptr ||
      ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) {
    return {};
  }
  return text.data();
}

}  // namespace

void PrepareSocket(int fd, const CongestionControl& congestion_control) noexcept {
  SetUpConnection(fd, congestion_control);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveAfterSeconds);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveEverySeconds);
  OpenReceiveWindow(fd, kReceiveWindowBytes);
}

std::string PeerAddressOf(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  auto* const address = reinterpret_cast<sockaddr*>(&name);
  if (::getpeername(fd, address, &length) != 0) return "?";
  const std::string host = HostOf(address);
  if (name.ss_family == AF_INET6) {
    return absl::StrCat("[", host,
                        "]:", ntohs(reinterpret_cast<sockaddr_in6*>(address)->sin6_port));
  }
  if (host.empty()) return "?";
  return absl::StrCat(host, ":", ntohs(reinterpret_cast<sockaddr_in*>(address)->sin_port));
}

std::string InterfaceOf(int fd) {
  sockaddr_storage name{};
  socklen_t length = sizeof(name);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) return "?";
  std::string own = HostOf(reinterpret_cast<sockaddr*>(&name));
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return own;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr != nullptr && HostOf(one->ifa_addr) == own) return one->ifa_name;
  }
  return own.empty() ? "?" : own;
}

}  // namespace ringd
