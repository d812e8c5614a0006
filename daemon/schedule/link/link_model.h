// What an all-reduce costs on a communicator: the figures that plans are made with.
//
// Thread safety: plain data and pure functions; any thread.
#ifndef RINGD_DAEMON_SCHEDULE_LINK_LINK_MODEL_H_
#define RINGD_DAEMON_SCHEDULE_LINK_LINK_MODEL_H_

#include <chrono>
#include <cstddef>

namespace ringd {

// An all-reduce as the slowest node's line sees it.
struct AllReduceShape {
  int rounds = 0;         // messages that wait for one another
  double line_bytes = 0;  // what each node sends in all of them
};

// An all-reduce takes rounds x latency + line_bytes / bytes_per_second. Which algorithm carries it
// out follows the rules of backends/collectives, from the same thresholds:
//   flat       3 to 16 nodes, (n-1) buffers of at most flat_bytes: 2 rounds, (n-1) buffers in each
//              over one node's line
//   doubling   up to small_bytes: about log2(n) rounds of the whole buffer
//   ring       above: 2(n-1) rounds, in which each node sends 2(n-1)/n of the bytes
struct LinkModel {
  static constexpr int kMostFlatNodes = 16;

  std::chrono::nanoseconds latency = std::chrono::microseconds(30);  // one message, any size
  double bytes_per_second = 1.25e9;                                  // one node's line, one way
  // What an operation costs apart from its messages: scheduling, packing, completing.
  std::chrono::nanoseconds operation_overhead = std::chrono::microseconds(20);
  int node_count = 2;
  std::size_t small_bytes = 0;
  std::size_t flat_bytes = 0;

  static constexpr bool MayBeFlat(int node_count) noexcept {
    return node_count > 2 && node_count <= kMostFlatNodes;
  }
  bool IsFlat(std::size_t bytes) const noexcept;
  bool IsRing(std::size_t bytes) const noexcept;
  AllReduceShape ShapeOf(std::size_t bytes) const noexcept;
  // With the overhead; at most about a day.
  std::chrono::nanoseconds AllReduceTime(std::size_t bytes) const noexcept;
};

// The largest size, up to `most`, at which recursive doubling is no slower than the ring.
std::size_t SmallBytesOf(const LinkModel& link, std::size_t most) noexcept;

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_LINK_LINK_MODEL_H_
