#include "daemon/fast_path/fast_path_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "backends/socket_options.h"
#include "daemon/config/host_port.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr int kListenBacklog = 64;
constexpr std::size_t kLongestAddress = 64;

// For a rank that sends: the other node must take it before the kernel's room is used up.
constexpr int kSendBufferBytes = 256 << 10;
constexpr timeval kReceiveTimeout{0, 20'000};

using AddressInfo = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressInfo Resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return {error == 0 ? list : nullptr, &::freeaddrinfo};
}

}  // namespace

bool IsFastPathAddress(const std::string& address) {
  if (address.size() > kLongestAddress) return false;
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  return parts.ok() && parts->port != 0 && Resolve(parts->host, parts->port) != nullptr;
}

absl::StatusOr<UniqueFd> ListenForFastPath(const std::string& host, std::string& address) {
  const AddressInfo resolved = Resolve(host, 0);
  if (resolved == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'", host, "' is no numeric address"));
  }
  UniqueFd fd(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (!fd.valid() || ::bind(fd.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 ||
      ::listen(fd.get(), kListenBacklog) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listening on ", host));
  }
  const std::uint16_t port = bound.ss_family == AF_INET6
                                 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                 : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  address = FormatHostPort({host, ntohs(port)});
  return fd;
}

absl::StatusOr<UniqueFd> BeginFastPathConnection(const std::string& address,
                                                 const CongestionControl& congestion_control) {
  const absl::StatusOr<HostPort> parts = ParseHostPort(address);
  if (!parts.ok()) return parts.status();
  const AddressInfo resolved = Resolve(parts->host, parts->port);
  if (resolved == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is no numeric address"));
  }
  UniqueFd fd(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  TuneFastPathSocket(fd.get(), congestion_control);
  if (::connect(fd.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return ErrnoStatus(errno, absl::StrCat("connecting to ", address));
  }
  return fd;
}

absl::Status OutcomeOfConnecting(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "connecting");
}

void TuneFastPathSocket(int fd, const CongestionControl& congestion_control) noexcept {
  SetUpConnection(fd, congestion_control);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kReceiveTimeout, sizeof(kReceiveTimeout));
}

void HandOverFastPathSocket(int fd) noexcept {
  // Of an open socket neither call fails.
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

absl::Status ReceiveSome(int fd, std::span<std::byte> bytes, std::size_t& filled) {
  while (filled < bytes.size()) {
    const ssize_t got = ::recv(fd, bytes.data() + filled, bytes.size() - filled, MSG_DONTWAIT);
    if (got > 0) {
      filled += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return absl::UnavailableError("it closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return absl::OkStatus();
    } else if (errno != EINTR) {
      return absl::UnavailableError(std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

absl::Status SendWhole(int fd, std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::UnavailableError(sent < 0 ? std::strerror(errno) : "the kernel has no room");
}

absl::Status CheckSilent(int fd) {
  std::byte byte{};
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) return absl::InvalidArgumentError("it said something that nobody waits for");
  if (got == 0) return absl::UnavailableError("it closed the connection");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return absl::OkStatus();
  return absl::UnavailableError(std::strerror(errno));
}

}  // namespace ringd
