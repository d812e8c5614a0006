// What UCX does not let one set about its TCP connections.
#ifndef RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
#define RINGD_BACKENDS_UCX_UCX_SOCKETS_H_

#include <cstdint>

#include "backends/congestion_control.h"

namespace ringd {

struct ConnectionSettings {
  CongestionControl congestion_control{};
  std::uint32_t unsent_bytes = 0;  // see LimitUnsent()
  // See OpenReceiveWindow(). Not of sockets with a timeout for reading, on which others block. 0: as it is.
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
