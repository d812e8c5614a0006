// Apart from tcp_socket.cc: only the kernel's own header has this field, and it does not agree with
// the C library's.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

#include "backends/tcp/tcp_socket.h"

namespace ringd {

std::chrono::microseconds BusyTimeOf(int fd) noexcept {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      length < offsetof(tcp_info, tcpi_busy_time) + sizeof(info.tcpi_busy_time)) {
    return std::chrono::microseconds(0);
  }
  return std::chrono::microseconds(info.tcpi_busy_time);
}

}  // namespace ringd
