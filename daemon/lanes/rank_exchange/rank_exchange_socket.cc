#include "daemon/lanes/rank_exchange/rank_exchange_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

namespace ringd {
namespace {

// For a rank that sends: the other node must take it before the kernel's room is used up.
constexpr int kSendBufferBytes = 256 << 10;
constexpr timeval kReceiveTimeout{0, 20'000};

}  // namespace

void TuneRankExchangeSocket(int fd) noexcept {
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kReceiveTimeout, sizeof(kReceiveTimeout));
}

void HandOverRankExchangeSocket(int fd) noexcept {
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
