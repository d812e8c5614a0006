#include "backends/ucx/ucx_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "backends/ucx/tcp_connections.h"

namespace ringd {
namespace {

// For how many of the process's TCP connections `set` is true.
template <typename Set>
int CountConnections(Set set) {
  int connections = 0;
  for (const int fd : TcpConnections()) {
    if (set(fd)) ++connections;
  }
  return connections;
}

}  // namespace

int LimitUnsentBytes(std::uint32_t bytes) noexcept {
  return CountConnections([bytes](int fd) {
    return ::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes)) == 0;
  });
}

int SetCongestionControl(const CongestionControl& choice) noexcept {
  if (choice.name.empty()) return 0;
  return CountConnections([&choice](int fd) { return ApplyCongestionControl(fd, choice); });
}

}  // namespace ringd
