// What UCX does not let one set about its TCP connections.
#ifndef RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
#define RINGD_BACKENDS_UCX_UCX_SOCKETS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd {

// UCX 1.13 has no such settings and does not tell its sockets, so these go by the process's list of
// descriptors and set something for all TCP connections; gRPC's few bytes don't notice. Both return
// how many connections have it now.
//
// Thread safety: any thread.

// Lets no more than about `bytes` wait unsent in each connection's socket (TCP_NOTSENT_LOWAT; the
// kernel adds up to one segment of 64 KiB). 0: the system's default, which is no limit. What is on
// its way and not acknowledged does not count, so a long line stays full.
int LimitUnsentBytes(std::uint32_t bytes) noexcept;

// Which congestion control connections are to have.
struct CongestionControl {
  std::string name;       // empty: each keeps what the system gave it
  bool only_bbr = false;  // only connections that have a kind of BBR get `name`
};

// What a setting means for this process:
//   "system"     what the kernel gives each connection
//   "auto"       the same, but cubic in place of BBR, or reno where the kernel allows no cubic
//   other words  this algorithm. kInvalidArgument: the kernel does not have it or does not allow it,
//                and which it does.
//
// BBR (N. Cardwell et al.: BBR: Congestion-Based Congestion Control, ACM Queue 14(5), 2016) sends
// next to nothing for 200 ms out of every 10 s, to see how short the way is when nobody queues. A ring
// stands still when one of its connections does, and they don't do it at the same time.
absl::StatusOr<CongestionControl> ChooseCongestionControl(absl::string_view setting);

int SetCongestionControl(const CongestionControl& choice) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_UCX_SOCKETS_H_
