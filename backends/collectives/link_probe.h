// Measures the links between all pairs of nodes.
#ifndef RINGD_BACKENDS_COLLECTIVES_LINK_PROBE_H_
#define RINGD_BACKENDS_COLLECTIVES_LINK_PROBE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/collective_request.h"
#include "backends/collectives/algorithm.h"
#include "proto/types/ids.h"

namespace ringd {

// In round k, from 1 to n-1, node i sends to node i+k and is sent to by node i-k, so all lines are busy
// one way each, as in a ring; where pairs share a line, each sees its part. A message is answered at
// once, the next one is sent when the answer has come, and the sender takes the time:
//
//   kEmpties messages without bytes   the round trip
//   kWarmUps messages with bytes      fill token buckets and open congestion windows: not counted
//   up to kMostCounted more           until kEnough of them is measured; the fastest counts, since noise
//                                     only adds
//   one that says that it was the last
//
// A slow line is not probed for long: a message that takes kLong is enough. A node goes on to the next
// round when its own messages were answered and the node that sends to it is done; what comes earlier
// than that is answered all the same, so nobody waits in a circle.
//
// 1 Gbit/s takes about 5 ms a round.
//
// A message's index is its number, or kAnswer and the number. Unlike other algorithms this one looks at
// the clock.
class LinkProbe final : public CollectiveAlgorithm {
 public:
  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override {
    return round_ == node_count_ && done_senders_ == node_count_ - 1;
  }

 private:
  using TimeClock = std::chrono::steady_clock;

  static constexpr std::uint32_t kEmpties = 2;
  static constexpr std::uint32_t kWarmUps = 2;
  static constexpr std::uint32_t kMostCounted = 8;
  static constexpr std::uint32_t kMostMessages = kEmpties + kWarmUps + kMostCounted;
  static constexpr std::uint32_t kLast = kMostMessages;  // wants no answer
  static constexpr std::uint32_t kAnswer = 0x100;
  static constexpr std::chrono::milliseconds kEnough{2};
  static constexpr std::chrono::milliseconds kLong{10};

  std::int32_t Target() const noexcept { return (self_ + round_) % node_count_; }
  std::int32_t Source() const noexcept { return (self_ + node_count_ - round_) % node_count_; }
  void SendNext() noexcept;
  void OnAnswer() noexcept;
  void GoOnIfDone() noexcept;

  Operation* operation_ = nullptr;
  std::int32_t node_count_ = 1;
  std::int32_t self_ = 0;
  std::vector<std::byte> filler_;          // what messages with bytes consist of
  std::vector<std::uint32_t> next_index_;  // by node: which message of it comes next
  std::int32_t done_senders_ = 0;

  // Of the present round:
  std::int32_t round_ = 1;  // node_count_: over
  std::uint32_t index_ = 0;
  bool begun_ = false;        // its first message was sent
  bool target_done_ = false;  // its last one was
  TimeClock::time_point sent_at_;
  std::chrono::nanoseconds counted_{0};
  std::chrono::nanoseconds round_trip_{0};
  std::chrono::nanoseconds message_{0};
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_LINK_PROBE_H_
