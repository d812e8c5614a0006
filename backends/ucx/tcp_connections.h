// The process's TCP connections, and what the kernel counts of each.
#ifndef RINGD_BACKENDS_UCX_TCP_CONNECTIONS_H_
#define RINGD_BACKENDS_UCX_TCP_CONNECTIONS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/base/clock.h"

namespace ringd {

// Descriptors of all TCP connections of this process, as far as they are connected. Another thread
// may close one meanwhile, and open something else: callers do nothing that would hurt.
std::vector<int> TcpConnections();

// A number that is another one when other connections are there. A few microseconds for each descriptor of the process.
std::uint64_t DigestTcpConnections();

// Which connection a descriptor stands for: the number that the kernel gave it, never used again.
struct TcpSocket {
  int fd = -1;
  std::uint64_t cookie = 0;

  bool known() const noexcept { return fd >= 0; }
};

// Counters since the connection began, from TCP_INFO.
struct TcpCounters {
  std::uint64_t written_bytes = 0;  // by this process, sent or not
  std::uint64_t acked_bytes = 0;
  // To the precision of the kernel's ticks.
  Clock::duration busy{};            // something was to be sent or acknowledged
  Clock::duration window_limited{};  // of it: could not be, for the receiver's window
  Clock::duration round_trip{};
  Clock::duration least_round_trip{};  // of the last minutes
  bool congestion_limited = false;     // as much is under way as the congestion window allows
  // Nearly all that was written is under way, and the congestion window allows more: if the process
  // waits for room to write, it is for the send buffer.
  bool all_sent = false;
};

// Nothing if the connection is gone, whatever its descriptor stands for now, or if the kernel is too
// old (before 4.19).
std::optional<TcpCounters> ReadTcpCounters(const TcpSocket& socket) noexcept;

// Finds out which connection a library writes to that does not tell: the one whose written bytes
// grow while it does.
//
//   WrittenConnection look;
//   ... have it write some thousand bytes ...
//   const TcpSocket found = look.Find(at_least);
//
// What other threads write meanwhile to connections of theirs is told apart by its size, or makes
// the answer "unknown".
class WrittenConnection {
 public:
  WrittenConnection();
  // Unknown, if nobody or more than one has been given so many bytes.
  TcpSocket Find(std::uint64_t at_least_bytes) const;

 private:
  struct Known {
    TcpSocket socket;
    std::uint64_t written_bytes = 0;
  };
  std::vector<Known> connections_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_UCX_TCP_CONNECTIONS_H_
