#include "backends/ucx/ucx_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "backends/ucx/tcp_connections.h"

namespace ringd {
namespace {

bool WakeAt(int fd, std::uint32_t bytes) noexcept {
  return ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0;
}

// Somebody blocks in reading it: the connections of the fast path, which trainers share (FastPathWire).
bool HasReadTimeout(int fd) noexcept {
  timeval timeout{};
  socklen_t length = sizeof(timeout);
  return ::getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, &length) == 0 &&
         (timeout.tv_sec != 0 || timeout.tv_usec != 0);
}

// To wake a reader only at so many bytes the kernel needs room for them, so it enlarges the buffer
// (Linux since 4.18, tcp_set_rcvlowat), and keeps it when the reader wants each byte again.
// SO_RCVBUF would need net.core.rmem_max to allow it, and would end the kernel's own tuning.
// A reader that begins to block in between would wait for all of the bytes.
void OpenReceiveWindow(int fd, std::uint32_t bytes) noexcept {
  if (!HasReadTimeout(fd) && WakeAt(fd, bytes)) WakeAt(fd, 1);
}

}  // namespace

void TuneConnections(const ConnectionSettings& settings) noexcept {
  for (const int fd : TcpConnections()) {
    if (!settings.congestion_control.name.empty()) {
      ApplyCongestionControl(fd, settings.congestion_control);
    }
    ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &settings.unsent_bytes,
                 sizeof(settings.unsent_bytes));
    if (settings.receive_window_bytes > 0) OpenReceiveWindow(fd, settings.receive_window_bytes);
  }
}

}  // namespace ringd
