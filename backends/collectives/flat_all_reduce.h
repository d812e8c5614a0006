// The all-reduce for the smallest buffers over a few nodes, and their barrier.
#ifndef RINGD_BACKENDS_COLLECTIVES_FLAT_ALL_REDUCE_H_
#define RINGD_BACKENDS_COLLECTIVES_FLAT_ALL_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/collectives/algorithm.h"

namespace ringd {

// All nodes send their input to one, the hub, which combines them and sends the result to all:
// 2(n-1) messages in 2 hops, where recursive doubling takes n log2 n messages in log2 n.
//
// When it is the better one, in the terms of LogP (D. Culler et al.: LogP: towards a realistic
// model of parallel computation, PPoPP 1993; L a message's way, o the work of sending and receiving
// one, G the line's time for a byte):
//
//   flat       2L + 2(n-1) o + 2(n-1) bytes G     the hub works and its line carries all
//   doubling   log2 n (L + 2o + bytes G)
//
// With L = 30 µs (kernel, network, wake-up) and o = 2 µs, flat wins from 3 to 16 nodes: kMaxNodes.
// What the hub's line carries must not outlast the hops, so there is a limit on (n-1) bytes,
// AlgorithmOptions::flat_all_reduce_bytes: 32 KiB take 10 Gbit/s 26 µs each way. A line of 1 Gbit/s
// between machines wants less, about 4 KiB. Where nodes share processors all messages count, not
// only those of one node: then it wins longer. So daemons let the limit follow from a trial of both
// on the job's nodes.
//
// The hub follows from the operation's channel, so buckets in flight at once load different nodes.
//
// Message indices: kInputIndex to the hub, kResultIndex from it. Inputs are copied as they arrive
// and combined when all are there, in the order of the nodes whoever is the hub and comes first;
// 16-bit types are rounded once. All nodes get identical bytes: the hub's.
//
// Without bytes it is a barrier. The one node of a communicator is its own hub.
class FlatAllReduce final : public CollectiveAlgorithm {
 public:
  static constexpr std::int32_t kMaxNodes = 16;

  // Of two nodes each can do it all in one hop.
  static constexpr bool SuitsNodes(std::int32_t node_count) noexcept {
    return node_count > 2 && node_count <= kMaxNodes;
  }
  // Whether an all-reduce of `bytes` keeps to `limit_bytes`, flat_all_reduce_bytes.
  static constexpr bool Suits(std::int32_t node_count, std::size_t bytes,
                              std::uint64_t limit_bytes) noexcept {
    return SuitsNodes(node_count) && bytes > 0 &&
           bytes <= limit_bytes / static_cast<std::uint64_t>(node_count - 1);
  }

  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override { return stage_ == Stage::kComplete; }

 private:
  static constexpr std::uint32_t kInputIndex = 0;
  static constexpr std::uint32_t kResultIndex = 1;

  enum class Stage : std::uint8_t {
    kWaitsForInput,  // the own input is not ready
    kAwaitsInputs,   // the hub: some node's input is missing
    kAwaitsResult,   // others: input sent, result missing
    kComplete,
  };

  bool is_hub() const noexcept;
  MessageVerdict TakeInput(std::int32_t from, std::span<const std::byte> payload) noexcept;
  void CombineInputs() noexcept;

  Operation* operation_ = nullptr;
  Stage stage_ = Stage::kComplete;
  std::int32_t hub_ = 0;
  std::span<const std::byte> input_;  // the own one
  // At the hub:
  std::int32_t missing_ = 0;       // inputs of other nodes that have not come
  std::vector<bool> seen_;         // by node: its input has come
  std::vector<std::byte> inputs_;  // of the others: by node, one behind the other
  std::vector<const void*> sources_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_FLAT_ALL_REDUCE_H_
