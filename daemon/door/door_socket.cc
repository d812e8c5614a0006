#include "daemon/door/door_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "backends/socket_options.h"
#include "daemon/config/host_port.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::size_t kLongestAddress = 80;

using AddressInfo = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Null, and why not in `error`, if there is no such address.
AddressInfo Resolve(const HostPort& address, int flags, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  return {error == 0 ? list : nullptr, &::freeaddrinfo};
}

void Set(int fd, int level, int option, int value) noexcept {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

// False if it can't be said.
bool Describe(const sockaddr_storage& address, socklen_t length, std::string& host,
              std::string& port) {
  std::array<char, NI_MAXHOST> host_text{};
  std::array<char, NI_MAXSERV> port_text{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host_text.data(),
                    host_text.size(), port_text.data(), port_text.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return false;
  }
  // A socket of both families sees IPv4 addresses so.
  host = std::string(absl::StripPrefix(host_text.data(), "::ffff:"));
  port = port_text.data();
  return true;
}

absl::Status Fail(const std::string& address) {
  const int error = errno;
  absl::Status status = ErrnoStatus(error, absl::StrCat("listening on ", address));
  if (error != EADDRINUSE) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(),
                                   ": another ringd serves there, or another program. Take another "
                                   "port: peer_address 127.0.0.1:0 for jobs on this node alone; "
                                   "else one that ranks know by RINGD_PEER_PORT"));
}

}  // namespace

absl::StatusOr<ListeningSocket> ListenForDoor(const std::string& address) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  int error = 0;
  const AddressInfo resolved = Resolve(*parts, AI_PASSIVE, error);
  if (resolved == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("listening on ", address, ": ", ::gai_strerror(error)));
  }
  ListeningSocket listening;
  listening.fd.Reset(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = listening.fd.get();
  if (fd < 0) return Fail(address);
  // A ringd that is started again finds connections of the one before that have not ended for the
  // kernel.
  Set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (resolved->ai_family == AF_INET6) Set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (::bind(fd, resolved->ai_addr, resolved->ai_addrlen) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return Fail(address);
  }
  std::string host;
  std::string port;
  if (!Describe(bound, length, host, port)) {
    return absl::InternalError(absl::StrCat("listening on ", address, ": where is not known"));
  }
  listening.address =
      FormatHostPort({host, static_cast<std::uint16_t>(std::strtoul(port.c_str(), nullptr, 10))});
  return listening;
}

std::string SourceOf(const sockaddr_storage& peer) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (peer.ss_family == AF_INET) {
    const in_addr& address = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    return ::inet_ntop(AF_INET, &address, text.data(), text.size()) == nullptr ? "" : text.data();
  }
  if (peer.ss_family != AF_INET6) return "";
  in6_addr address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  // A socket of both families sees IPv4 addresses so.
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return ::inet_ntop(AF_INET, &address.s6_addr[12], text.data(), text.size()) == nullptr
               ? ""
               : text.data();
  }
  std::fill(std::begin(address.s6_addr) + 8, std::end(address.s6_addr), std::uint8_t{0});
  return ::inet_ntop(AF_INET6, &address, text.data(), text.size()) == nullptr ? "" : text.data();
}

AcceptedSocket AcceptOne(int listener, const CongestionControl& congestion_control, int& error) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  AcceptedSocket accepted;
  accepted.fd.Reset(::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
  error = accepted.fd.valid() ? 0 : errno;
  if (!accepted.fd.valid()) return accepted;
  SetUpConnection(accepted.fd.get(), congestion_control);
  accepted.source = SourceOf(peer);
  std::string host;
  std::string port;
  if (Describe(peer, length, host, port)) {
    accepted.whole = absl::StrCat(host, " port ", port);
  } else {
    accepted.whole = "somebody";
  }
  return accepted;
}

absl::StatusOr<UniqueFd> BeginDoorConnection(const std::string& address,
                                             const CongestionControl& congestion_control) {
  if (address.size() > kLongestAddress) {
    return absl::InvalidArgumentError("the address is too long");
  }
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  int error = 0;
  const AddressInfo resolved = Resolve(*parts, AI_NUMERICHOST, error);
  if (resolved == nullptr || parts->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is no address with a numeric host and a port"));
  }
  UniqueFd fd(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  SetUpConnection(fd.get(), congestion_control);
  if (::connect(fd.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return ErrnoStatus(errno, "connecting");
  }
  return fd;
}

absl::Status OutcomeOfDoorConnection(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return ErrnoStatus(error, "connecting");
  // The kernel may give the connection the port that it calls, if nobody listens there: then it is
  // with itself.
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof(here);
  socklen_t there_length = sizeof(there);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_length) == 0 &&
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_length) == 0 &&
      here_length == there_length && std::memcmp(&here, &there, here_length) == 0) {
    return absl::UnavailableError("connecting: nobody listens there");
  }
  return absl::OkStatus();
}

}  // namespace ringd
