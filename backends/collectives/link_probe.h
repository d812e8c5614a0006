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

// In a round node i sends to node i+k and is sent to by node i-k, so all lines are busy one way
// each, as in a ring; where pairs share a line, each sees its part. There is a round for each k
// from 1 to n-1, and that twice: first for the round trips, while nothing else is on the lines,
// then for the bytes. A message is answered at once, the next one is sent when the answer has come,
// and the sender takes the time:
//
//   first    kEmpties messages without bytes; the fastest counts
//   then     a question without bytes, answered when the receiver is in this round, too, so that
//            nobody else sends to it
//            kWarmUps messages with bytes, which fill token buckets and open congestion windows
//            kFewestCounted more or as many as fill kEnough; the median counts: some come while a
//            processor is busy, some while nobody else is on the line
//            one that says that it was the last
//
// A slow line is not probed for long: after kLong one that counts is enough.
//
// A node goes on to the next round when its own messages were answered and the node that sends to
// it is done. Nobody waits in a circle: of the nodes that are in the lowest round, none waits for
// one of a higher round.
//
// 1 Gbit/s takes about 6 ms a round.
//
// A message's index is its number among those to a node, or kAnswer and the number. Unlike other
// algorithms this one looks at the clock.
class LinkProbe final : public CollectiveAlgorithm {
 public:
  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override {
    return is_over() && done_senders_ == node_count_ - 1;
  }

 private:
  using TimeClock = std::chrono::steady_clock;

  static constexpr std::uint32_t kEmpties = 5;
  static constexpr std::uint32_t kQuestion = kEmpties;
  static constexpr std::uint32_t kFirstWithBytes = kQuestion + 1;
  static constexpr std::uint32_t kWarmUps = 2;
  static constexpr std::uint32_t kFewestCounted = 3;
  static constexpr std::uint32_t kMostCounted = 8;
  static constexpr std::uint32_t kMostMessages = kFirstWithBytes + kWarmUps + kMostCounted;
  static constexpr std::uint32_t kLast = kMostMessages;  // wants no answer
  static constexpr std::uint32_t kAnswer = 0x100;
  static constexpr std::chrono::milliseconds kEnough{2};
  static constexpr std::chrono::milliseconds kLong{50};

  bool is_over() const noexcept { return round_ == 2 * (node_count_ - 1); }
  bool sends_bytes() const noexcept { return round_ >= node_count_ - 1; }
  std::int32_t Distance() const noexcept { return round_ % (node_count_ - 1) + 1; }
  std::int32_t Target() const noexcept { return (self_ + Distance()) % node_count_; }
  std::int32_t Source() const noexcept { return (self_ + node_count_ - Distance()) % node_count_; }
  bool SourceIsDone() const noexcept;
  void SendNext() noexcept;
  void AnswerQuestion() noexcept;
  void OnAnswer() noexcept;
  bool IsMeasured() const noexcept;
  void GoOnIfDone() noexcept;

  Operation* operation_ = nullptr;
  std::int32_t node_count_ = 1;
  std::int32_t self_ = 0;
  std::vector<std::byte> filler_;          // what messages with bytes consist of
  std::vector<std::uint32_t> next_index_;  // by node: which message of it comes next
  std::vector<bool> asks_;                 // by node: its question waits for an answer
  std::vector<LinkTimes> times_;           // by node
  std::int32_t done_senders_ = 0;

  // Of the present round:
  std::int32_t round_ = 0;
  std::uint32_t index_ = 0;
  bool begun_ = false;        // its first message was sent
  bool target_done_ = false;  // its last one was
  TimeClock::time_point sent_at_;
  std::chrono::nanoseconds total_time_{0};
  std::chrono::nanoseconds counted_time_{0};
  std::vector<std::chrono::nanoseconds> counted_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_LINK_PROBE_H_
