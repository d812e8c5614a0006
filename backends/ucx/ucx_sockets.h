// What UCX does not let one set about its TCP connections.
#ifndef RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
#define RINGD_BACKENDS_UCX_UCX_SOCKETS_H_

#include <cstdint>

#include "backends/congestion_control.h"

namespace ringd {

struct ConnectionSettings {
  CongestionControl congestion_control{};
  // No more than about so many wait unsent in the socket (TCP_NOTSENT_LOWAT; the kernel adds up to
  // one segment of 64 KiB). What is on its way and not acknowledged does not count, so a long line
  // stays full. 0: no limit.
  std::uint32_t unsent_bytes = 0;
  // The neighbour may send so much ahead of what has been read, from now on: the receive buffer is
  // enlarged for it, up to half of what the host allows (the last of net.ipv4.tcp_rmem), and stays
  // the kernel's to enlarge further. Not of sockets with a timeout for reading, on which others block. 0: as it is; it
  // never shrinks.
  std::uint32_t receive_window_bytes = 0;
};

// UCX 1.13 has no such settings and does not tell its sockets, so this goes by the process's list of
// descriptors and sets up all TCP connections; gRPC's few bytes don't notice. What the kernel
// refuses stays as it was.
//
// Thread safety: any thread.
void TuneConnections(const ConnectionSettings& settings) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
