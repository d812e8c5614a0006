#include "backends/ucx/ucx_sockets.h"

#include <sys/socket.h>
#include <sys/time.h>

#include "backends/socket_options.h"
#include "backends/ucx/tcp_connections.h"

namespace ringd {
namespace {

// Somebody blocks in reading it: the connections of the fast path, which trainers share (FastPathWire).
bool HasReadTimeout(int fd) noexcept {
  timeval timeout{};
  socklen_t length = sizeof(timeout);
  return ::getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, &length) == 0 &&
         (timeout.tv_sec != 0 || timeout.tv_usec != 0);
}

}  // namespace

void TuneConnections(const ConnectionSettings& settings) noexcept {
  for (const int fd : TcpConnections()) {
    if (!settings.congestion_control.name.empty()) {
      ApplyCongestionControl(fd, settings.congestion_control);
    }
    LimitUnsent(fd, settings.unsent_bytes);
    if (settings.receive_window_bytes > 0 && !HasReadTimeout(fd)) {
      OpenReceiveWindow(fd, settings.receive_window_bytes);
    }
  }
}

}  // namespace ringd
