// What an occurrence of a learned bucket takes.
#ifndef RINGD_DAEMON_LANES_CHANNEL_TIME_H_
#define RINGD_DAEMON_LANES_CHANNEL_TIME_H_

#include <chrono>
#include <cstdint>

namespace ringd {

// Lately, on this node.
struct ChannelTime {
  std::chrono::nanoseconds waited{0};  // until the first message of another node came
  std::chrono::nanoseconds wire{0};    // from then until the ranks had the result
  std::uint64_t count = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_CHANNEL_TIME_H_
