// Which block a node of a ring sends in which step: the one place that knows.
#ifndef RINGD_BACKENDS_COLLECTIVES_RING_LAYOUT_H_
#define RINGD_BACKENDS_COLLECTIVES_RING_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "backends/block_map.h"
#include "backends/collective_request.h"
#include "proto/operations/operation_traits.h"

namespace ringd {

// A node's way through a ring of N nodes over one map of blocks. There are two passes of N-1 steps,
// and a kind has one of them or both:
//
//   reduce-scatter   first, of what is combined: a block that comes is a partial sum, to which the
//                    node adds its input; the last one that comes is complete
//   all-gather       then, of what all nodes get: a block that comes is a result
//
// In step g the node sends SentBlock(g) to its successor and receives SentBlock(g+1), which it
// sends on in the next step. The node's first block is its own, so it ends a reduce-scatter with
// the block of its successor; the all-gather goes on from there. A reduce-scatter alone begins one
// block earlier, and ends with the node's own.
//
// So the node's input is needed in the order SentBlock(0), SentBlock(1), ..., each block once.
//
// Thread safety: a value.
// Ownership: borrows what the map borrows.
class RingLayout {
 public:
  constexpr RingLayout() noexcept = default;

  // Requirement: the map has a block for each node.
  constexpr RingLayout(const OperationTraits& traits, const BlockMap& map,
                       std::uint32_t self) noexcept
      : map_(map),
        self_(self),
        first_(traits.output == Extent::kOwnPart ? self + map.block_count() - 1 : self),
        reduce_steps_(traits.combines ? map.block_count() - 1 : 0),
        step_count_(reduce_steps_ + (traits.output == Extent::kAll ? map.block_count() - 1 : 0)) {}

  constexpr const BlockMap& map() const noexcept { return map_; }
  constexpr std::uint32_t node_count() const noexcept { return map_.block_count(); }
  constexpr std::uint32_t self() const noexcept { return self_; }
  constexpr std::uint32_t successor() const noexcept { return (self_ + 1) % node_count(); }
  constexpr std::uint32_t predecessor() const noexcept {
    return (self_ + node_count() - 1) % node_count();
  }

  // Of both passes.
  constexpr std::uint32_t step_count() const noexcept { return step_count_; }
  // What comes in the steps below this is a partial sum; in the last of them all other nodes'
  // inputs.
  constexpr std::uint32_t reduce_steps() const noexcept { return reduce_steps_; }

  // The block that the node sends in `step`, or, of step + 1, receives. Requirement: step <= 2N.
  constexpr std::uint32_t SentBlock(std::uint32_t step) const noexcept {
    return (first_ + 2 * node_count() - step) % node_count();
  }

  // How a message is numbered: by step, and by chunk within it.
  constexpr std::uint32_t IndexOf(std::uint32_t step, std::uint32_t chunk) const noexcept {
    return step * map_.MaxChunkCount() + chunk;
  }
  constexpr std::uint32_t StepOf(std::uint32_t index) const noexcept {
    return index / map_.MaxChunkCount();
  }
  constexpr std::uint32_t ChunkOf(std::uint32_t index) const noexcept {
    return index % map_.MaxChunkCount();
  }
  constexpr std::size_t index_count() const noexcept {
    return std::size_t{step_count_} * map_.MaxChunkCount();
  }

 private:
  BlockMap map_;
  std::uint32_t self_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t reduce_steps_ = 0;
  std::uint32_t step_count_ = 0;
};

// Where a node stands in a ring, and how that cuts blocks.
struct RingPlace {
  std::uint32_t node_count = 1;
  std::uint32_t self = 0;
  std::uint32_t chunk_bytes = 0;  // ChunkBytesOf()
};

// The way of a request through the ring. Requirement: its kind moves data.
constexpr RingLayout RingLayoutOf(const CollectiveRequest& request,
                                  const RingPlace& place) noexcept {
  const std::size_t bytes = request.element_count * SizeOf(request.data_type);
  const BlockMap map = request.blocks.empty()
                           ? BlockMap::Even(bytes, place.node_count, place.chunk_bytes)
                           : BlockMap::Of(request.blocks, place.chunk_bytes);
  return {TraitsOf(request.kind), map, place.self};
}

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_RING_LAYOUT_H_
