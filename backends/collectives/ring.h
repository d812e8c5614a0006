// Reduce-scatter, all-gather, and the all-reduce that is both: around a ring, with the least bytes.
#ifndef RINGD_BACKENDS_COLLECTIVES_RING_H_
#define RINGD_BACKENDS_COLLECTIVES_RING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/collectives/algorithm.h"
#include "backends/collectives/ring_layout.h"

namespace ringd {

// Ring reduce-scatter and ring all-gather. The all-reduce is one followed by the other over the
// same map, without a barrier between them (P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce
// algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69, 2009). Blocks of
// different sizes are MPI's (reduce_scatter, allgatherv); each travels as its own bytes, so the
// longest sets the pace.
//
// ring_layout.h says which block goes when. What comes in the reduce-scatter's steps is reduced
// into the own block, what comes in the all-gather's is the result and replaces it; either is sent
// on in the next step. Of an all-reduce each node sends 2(N-1)/N of the buffer, and of either pass
// alone half of that, which is the least possible.
//
// Each block is cut into chunks that go their way independently: while one chunk is on the wire,
// the next is packed, the one before reduced, and finished ones unpacked.
//
// Each step is one pass over memory: a partial sum and the own input go into the buffer, from where
// the next node gets it; the last addition goes to where the result belongs; and so do results,
// where they were received, through the buffer only if the accessor can't keep them in one piece
// elsewhere.
//
// An input of an all-reduce may be sent from where its result will lie. It is overwritten when the
// result comes, and as that was made of all that was sent, the send has ended. What the other two
// send of a node's input no result replaces.
//
// All nodes get identical bytes: every chunk is reduced once, by the nodes in ring order.
//
// Where a block is empty, some node may have done its part before others have begun. So nothing is
// sent unasked then: nobody runs ahead of the others by any number of operations.
class Ring final : public CollectiveAlgorithm {
 public:
  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override {
    return sent_ == to_send_ && received_ == to_receive_ && first_taken_ == first_chunks_;
  }

 private:
  struct Outgoing {
    std::uint32_t index;
    std::span<const std::byte> payload;
  };

  // Of a node that is alone, in one Advance().
  static constexpr std::uint32_t kChunksPerAdvance = 8;

  // The next chunk of the block that is sent first; empty if its input is not ready.
  std::span<const std::byte> TakeFirst() noexcept;
  bool AdvanceAlone() noexcept;

  Operation* operation_ = nullptr;
  RingLayout layout_;
  std::int32_t successor_ = 0;
  std::uint32_t sent_ = 0;
  std::uint32_t to_send_ = 0;
  std::uint32_t received_ = 0;
  std::uint32_t to_receive_ = 0;
  std::uint32_t first_taken_ = 0;     // chunks of the block that is sent first
  std::uint32_t first_chunks_ = 0;    // how many it has
  std::vector<Outgoing> to_forward_;  // in the order they became ready
  std::size_t forwarded_ = 0;         // how many of these have been sent
  std::vector<bool> seen_;            // by index: received already
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_RING_H_
