// The latency-optimal all-reduce, for small buffers.
#ifndef RINGD_BACKENDS_COLLECTIVES_DOUBLING_ALL_REDUCE_H_
#define RINGD_BACKENDS_COLLECTIVES_DOUBLING_ALL_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/block_map.h"
#include "backends/collectives/algorithm.h"

namespace ringd {

// Recursive doubling (R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective
// Communication Operations in MPICH, Int. J. High Perform. Comput. Appl. 19, 2005): in round k each
// node exchanges its whole partial result with the node whose number differs in bit k, so that log2
// N rounds suffice. If N is no power of two, the first 2(N - 2^m) nodes pair up before: the even
// one of a pair gives its input to the odd one, sits out, and gets the result in the end.
//
// Message indices: 0 the even node's input, 1 + k round k, kResultIndex the result for the even
// node.
//
// All nodes get identical bytes: both nodes of an exchange combine the same two in the order of the
// nodes. (The order counts for which of two NaNs, or of +0 and -0, stays.) The whole buffer is one
// message, so it must not be longer than a payload.
class DoublingAllReduce final : public CollectiveAlgorithm {
 public:
  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override { return stage_ == Stage::kComplete; }

 private:
  static constexpr std::uint32_t kInputIndex = 0;
  static constexpr std::uint32_t kResultIndex = 64;

  enum class Stage : std::uint8_t {
    kWaitsForInput,   // the own input is not ready
    kAwaitsPartner,   // odd: the even partner's input
    kMustSendRound,   // round_ is to be sent
    kAwaitsRound,     // round_ was sent; the other's message is missing
    kMustSendResult,  // odd: to the even partner
    kAwaitsResult,    // even: input sent, result missing
    kComplete,
  };

  ByteRange all() const noexcept;
  std::int32_t NodeOf(std::uint32_t place) const noexcept;
  std::int32_t RoundPartner(std::uint32_t round) const noexcept;
  void EnterRound(std::uint32_t round) noexcept;
  // Combines with the partial result of `from`.
  void Reduce(NodeIndex from, std::span<const std::byte> payload) noexcept;

  Operation* operation_ = nullptr;
  Stage stage_ = Stage::kComplete;
  std::span<const std::byte> partial_;  // what has been combined so far: the input, or the buffer
  std::int32_t pair_partner_ = -1;      // -1: not one of a pair
  bool gives_away_ = false;             // the even one of a pair
  std::uint32_t extra_ = 0;             // pairs
  std::uint32_t place_ = 0;             // among the 2^m nodes that exchange
  std::uint32_t round_ = 0;
  std::uint32_t round_count_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_DOUBLING_ALL_REDUCE_H_
