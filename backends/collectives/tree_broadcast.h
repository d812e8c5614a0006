// Broadcast along a tree: a binomial one for small buffers, a chain for large ones.
#ifndef RINGD_BACKENDS_COLLECTIVES_TREE_BROADCAST_H_
#define RINGD_BACKENDS_COLLECTIVES_TREE_BROADCAST_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/block_map.h"
#include "backends/collectives/algorithm.h"

namespace ringd {

// The root's buffer, cut into chunks, flows down a tree; each node sends a chunk on as soon as it
// has it. A chain (each node has one child) moves large buffers at the speed of one link whatever
// the number of nodes; a binomial tree reaches all nodes in log2 N steps. Both, and when which is
// better: J. Pjesivac-Grbovic, T. Angskun, G. Bosilca, G. Fagg, E. Gabriel, J. Dongarra:
// Performance analysis of MPI collective operations, Cluster Computing 10, 2007.
//
// Nodes are numbered from the root. A sender gets no credit beforehand: it finishes when its
// children have posted, so a root cannot run ahead of the others by any number of broadcasts.
class TreeBroadcast final : public CollectiveAlgorithm {
 public:
  enum class Shape : std::uint8_t { kBinomial, kChain };

  // Before Begin(); equal on all nodes.
  void SetShape(Shape shape) noexcept { shape_ = shape; }

  void Begin(Operation& operation) override;
  bool Advance() noexcept override;
  MessageVerdict OnMessage(NodeIndex from, std::uint32_t index,
                           std::span<const std::byte> payload) noexcept override;
  bool IsComplete() const noexcept override;

 private:
  struct Child {
    std::int32_t node;
    std::uint32_t sent;  // chunks
  };

  // Chunks that a root looks at in one Advance().
  static constexpr std::uint32_t kChunksPerAdvance = 8;

  void AddChildren(std::uint32_t place, std::uint32_t node_count);
  std::int32_t NodeOf(std::uint32_t place) const noexcept;

  Operation* operation_ = nullptr;
  Shape shape_ = Shape::kChain;
  BlockMap map_;  // one block
  bool is_root_ = false;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t have_ = 0;  // chunks received; at the root: chunks found ready, in order
  std::vector<Child> children_;
  std::vector<bool> seen_;                          // by chunk: it is here
  std::vector<std::span<const std::byte>> chunks_;  // by chunk: where it can be sent from
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_COLLECTIVES_TREE_BROADCAST_H_
