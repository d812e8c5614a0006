// What UCX does not let one set about its TCP connections.
#ifndef RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
#define RINGD_BACKENDS_UCX_UCX_SOCKETS_H_

#include <cstdint>

#include "backends/congestion_control.h"

namespace ringd {

// UCX 1.13 has no such settings and does not tell its sockets, so these go by the process's list of
// descriptors and set something for all TCP connections; gRPC's few bytes don't notice. Both return
// how many connections have it now.
//
// Thread safety: any thread.

// Lets no more than about `bytes` wait unsent in each connection's socket (TCP_NOTSENT_LOWAT; the
// kernel adds up to one segment of 64 KiB). What is on its way and not acknowledged does not count, so a long line stays
// full.
int LimitUnsentBytes(std::uint32_t bytes) noexcept;

int SetCongestionControl(const CongestionControl& choice) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
