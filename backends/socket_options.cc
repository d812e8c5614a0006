#include "backends/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ringd {
namespace {

// Firewalls forget connections that are silent for some minutes.
constexpr int kKeepAliveIdleSeconds = 60;

// A lost host is noticed sooner, by the control streams. A stopped engine reads nothing, and its
// ringd ends it after 30 s by default: that comes first.
constexpr int kUnacknowledgedMilliseconds = 40'000;

void Set(int fd, int level, int option, int value) noexcept {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

void SetUpConnection(int fd, const CongestionControl& congestion_control) noexcept {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMilliseconds);
  ApplyCongestionControl(fd, congestion_control);
}

void LimitUnsent(int fd, std::uint32_t bytes) noexcept {
  ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

bool WakeAt(int fd, std::uint32_t bytes) noexcept {
  return ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0;
}

// To wake a reader only at so many bytes the kernel needs room for them, so it enlarges the buffer
// (Linux since 4.18, tcp_set_rcvlowat), and keeps it when the reader wants each byte again.
// SO_RCVBUF would need net.core.rmem_max to allow it, and would end the kernel's own tuning.
// A reader that begins to block in between would wait for all of the bytes.
void OpenReceiveWindow(int fd, std::uint32_t bytes) noexcept {
  if (WakeAt(fd, bytes)) WakeAt(fd, 1);
}

}  // namespace ringd
