// What UCX does not let one set about its TCP connections.
#ifndef RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
#define RINGD_BACKENDS_UCX_UCX_SOCKETS_H_

#include <cstdint>

namespace ringd {

// Lets no more than about `bytes` wait unsent in each connection's socket (TCP_NOTSENT_LOWAT; the
// kernel adds up to one segment of 64 KiB). 0: the system's default, which is no limit. What is on
// its way and not acknowledged does not count, so a long line stays full.
//
// UCX 1.13 has no such setting and does not tell its sockets, so this goes by the process's list of
// descriptors and sets it for all TCP connections; gRPC's few bytes don't notice. Returns how many
// there are.
int LimitUnsentBytes(std::uint32_t bytes) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
