// How fast the lines are on which this node sends.
#ifndef RINGD_BACKENDS_TCP_LINE_RATE_H_
#define RINGD_BACKENDS_TCP_LINE_RATE_H_

#include <cstddef>
#include <cstdint>

#include "backends/tcp/tcp_socket.h"

namespace ringd {

// Tells slow lines from others, by what the kernel says of bulk that has left: how many bytes were
// acknowledged in how much time in which some were under way. What a process computes meanwhile, or
// reads late, is not in it; lines shared with others are as slow as the share.
//
// Over a slow line a receiver sleeps until frames are whole: the bytes trickle in, and it would be
// woken for each part. Over a fast one that would make it late: it copies a frame's first part out
// of the socket while the rest comes. A ring is as slow as its slowest line, so the lines that a
// node sends on also speak for those that it receives on; where they differ, it is only woken more
// often.
//
// Thread safety: the progress thread only.
class LineRate {
 public:
  // A line is measured each time that it was given so much bulk.
  static constexpr std::size_t kMeasuredBytes = 4 << 20;

  // What a line has sent since it was measured last, by `connections` for bulk together.
  void Note(const TcpAccount& sent, std::size_t connections) noexcept;

  bool is_slow() const noexcept { return is_slow_; }

 private:
  // Of 1 Gbit/s is slow, of 10 Gbit/s is not, the more so where processors are late: bytes in a
  // second.
  static constexpr std::uint64_t kSlowBelow = 250'000'000;
  static constexpr std::uint64_t kFastFrom = 375'000'000;

  bool is_slow_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_LINE_RATE_H_
