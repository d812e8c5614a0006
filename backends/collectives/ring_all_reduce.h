// The bandwidth-optimal all-reduce.
#ifndef RINGD_BACKENDS_COLLECTIVES_RING_ALL_REDUCE_H_
#define RINGD_BACKENDS_COLLECTIVES_RING_ALL_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/collectives/algorithm.h"
#include "backends/collectives/chunking.h"

namespace ringd {

// Ring reduce-scatter followed by ring all-gather (P. Patarasuk, X. Yuan: Bandwidth optimal
// all-reduce algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69, 2009),
// without a barrier between the steps.
//
// The buffer is divided into N blocks. In step g = 0 .. 2N-3 node i sends block i-g to node i+1 and
// receives block i-g-1 from node i-1 (modulo N). What comes in the first N-1 steps is reduced into
// the own block, what comes later is the result and replaces it; either is sent on in the next
// step. Each node sends 2(N-1)/N of the buffer, which is the least possible.
//
// Each block is cut into chunks that go their way independently: while one chunk is on the wire,
// the next is packed, the one before reduced, and finished ones unpacked. A message's index is step
// * MaxChunkCount + chunk.
//
// Each step is one pass over memory: a partial sum and the own input go into the buffer, from where
// the next node gets it; the last addition goes to where the result belongs; and so do results,
// where they were received, through the buffer only if the stages can't keep them in one piece
// elsewhere.
//
// An input may be sent from where its result will lie. It is overwritten when the result comes, and
// as that was made of all that was sent, the send has ended.
//
// All nodes get identical bytes: every chunk is reduced once, by the nodes in ring order.
class RingAllReduce final : public CollectiveAlgorithm {
 public:
  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override {
    return sent_ == to_send_ && received_ == to_receive_;
  }

 private:
  struct Outgoing {
    std::uint32_t index;
    std::span<const std::byte> payload;
  };

  // The block that this node sends in `step`; what it receives then is SentBlock(step + 1).
  std::uint32_t SentBlock(std::uint32_t step) const noexcept;

  Operation* operation_ = nullptr;
  Chunking chunking_;
  std::uint32_t node_count_ = 0;
  std::uint32_t self_ = 0;
  std::int32_t successor_ = 0;
  std::uint32_t step_count_ = 0;
  std::uint32_t chunks_per_step_ = 0;
  std::uint32_t sent_ = 0;
  std::uint32_t to_send_ = 0;
  std::uint32_t received_ = 0;
  std::uint32_t to_receive_ = 0;
  std::uint32_t own_chunks_sent_ = 0;  // of the own block, step 0
  std::vector<Outgoing> to_forward_;   // in the order they became ready
  std::size_t forwarded_ = 0;          // how many of these have been sent
  std::vector<bool> seen_;             // by index: received already
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_RING_ALL_REDUCE_H_
