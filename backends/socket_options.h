// What TCP connections between nodes hold ready, on either side.
#ifndef RINGD_BACKENDS_SOCKET_OPTIONS_H_
#define RINGD_BACKENDS_SOCKET_OPTIONS_H_

#include <cstdint>

#include "backends/congestion_control.h"

namespace ringd {

// What may wait unsent in a socket, with up to a segment of 64 KiB on top. Alone: so much that the
// line goes on while this thread is kept from its processor for a moment, and that urgent messages
// behind it wait for 2 ms at 1 Gbit/s. While jobs share the line: less than a chunk, and more than
// a line of 10 Gbit/s takes until this thread comes round again.
inline constexpr std::uint32_t kUnsentBytes = 256 * 1024;
inline constexpr std::uint32_t kSharedUnsentBytes = 64 * 1024;

// How far a neighbour may be ahead of this thread's reading. At 10 Gbit/s it sends that in 14 ms:
// by then this thread has come round from what it sends itself, also on a busy processor. The
// kernel's own window gets there in seconds (README.md).
inline constexpr std::uint32_t kReceiveWindowBytes = 16 * 1024 * 1024;

// What every connection between nodes has: it sends at once, is not forgotten by firewalls while it
// is silent, and ends when the other host does not acknowledge for 40 s. What the kernel refuses
// stays as it was: that makes the way slower, not wrong.
void SetUpConnection(int fd, const CongestionControl& congestion_control) noexcept;

// No more than about `bytes` wait unsent in the socket (TCP_NOTSENT_LOWAT; the kernel adds up to
// one segment of 64 KiB). What is on its way and not acknowledged does not count, so a long line
// stays full. 0: no limit. What the kernel refuses stays as it was.
void LimitUnsent(int fd, std::uint32_t bytes) noexcept;

// `fd` counts as readable when so many bytes have come, or its end, or as many as the kernel has
// room for (SO_RCVLOWAT). False: the kernel refuses.
bool WakeAt(int fd, std::uint32_t bytes) noexcept;

// The neighbour may send so much ahead of what has been read, from now on: the receive buffer is
// enlarged for it, up to half of what the host allows (the last of net.ipv4.tcp_rmem), and stays
// the kernel's to enlarge further. It never shrinks. Requirement: nobody blocks in reading `fd`.
void OpenReceiveWindow(int fd, std::uint32_t bytes) noexcept;

}  // namespace ringd

#endif  // RINGD_BACKENDS_SOCKET_OPTIONS_H_
