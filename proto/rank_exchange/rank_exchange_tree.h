// Who talks to whom in the rank exchange: inputs go up a tree of nodes to its hub, node 0, and
// results come down.
//
//   flat       every node is the hub's child: two messages' time, but all of them go over the
//              hub's line
//   k-nomial   with k = 4: node n's parent is n without its lowest digit to the base 4 that is not
//              0 (0: 1, 2, 3, 4, 8, 12; 4: 5, 6, 7). Two levels up to 16 nodes, and a line carries
//              4 inputs and results of 8 nodes, 6 of 16. With k = 2, the binomial tree, it is 3 and
//              4 in 3 and 4 levels: of 8 nodes on two processors 4 KiB took 214 us instead of 200,
//              and 237 by the flat one.
//
// Both are in Sanders, Mehlhorn, Dietzfelbinger, Dementiev, "Sequential and Parallel Algorithms and
// Data Structures" (2019), chapter 13, and, as "k-nomial", in the algorithms of MPICH's and Open
// MPI's broadcasts.
//
// Thread safety: pure functions; any thread.
#ifndef RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_TREE_H_
#define RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_TREE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ringd {

// Bit n stands for node n.
using RankExchangeNodeSet = std::uint32_t;

constexpr RankExchangeNodeSet NodeBit(std::uint32_t node) noexcept {
  return RankExchangeNodeSet{1} << node;
}

// The lowest node of `set`, which is taken out of it. Requirement: `set` is not empty.
constexpr std::uint32_t TakeLowest(RankExchangeNodeSet& set) noexcept {
  const auto node = static_cast<std::uint32_t>(std::countr_zero(set));
  set &= set - 1;
  return node;
}

enum class RankExchangeTree : std::uint8_t { kFlat, kKnomial };

inline constexpr std::uint32_t kRankExchangeTreeRadix = 4;

// Requirement: `node` is not the hub.
constexpr std::uint32_t ParentIn(RankExchangeTree tree, std::uint32_t node) noexcept {
  if (tree == RankExchangeTree::kFlat) return 0;
  std::uint32_t place = 1;
  while (node / place % kRankExchangeTreeRadix == 0) place *= kRankExchangeTreeRadix;
  return node - node / place % kRankExchangeTreeRadix * place;
}

constexpr RankExchangeNodeSet ChildrenIn(RankExchangeTree tree, std::uint32_t node,
                                         std::uint32_t node_count) noexcept {
  RankExchangeNodeSet children = 0;
  for (std::uint32_t other = node + 1; other < node_count; ++other) {
    if (ParentIn(tree, other) == node) children |= NodeBit(other);
  }
  return children;
}

// The most messages that follow each other from a leaf to the hub.
constexpr std::uint32_t DepthOf(RankExchangeTree tree, std::uint32_t node_count) noexcept {
  std::uint32_t depth = 0;
  for (std::uint32_t node = 0; node < node_count; ++node) {
    std::uint32_t above = 0;
    for (std::uint32_t at = node; at != 0; at = ParentIn(tree, at)) ++above;
    depth = std::max(depth, above);
  }
  return depth;
}

// The most messages of one operation that one node sends (as many come to it).
constexpr std::uint32_t LoadOf(RankExchangeTree tree, std::uint32_t node_count) noexcept {
  std::uint32_t load = 0;
  for (std::uint32_t node = 0; node < node_count; ++node) {
    const auto children =
        static_cast<std::uint32_t>(std::popcount(ChildrenIn(tree, node, node_count)));
    load = std::max(load, children + (node == 0 ? 0 : 1));
  }
  return load;
}

// To whom a node has a connection: its neighbours in the flat tree and, if `knomial`, in that one.
constexpr RankExchangeNodeSet NeighboursOf(std::uint32_t node, std::uint32_t node_count,
                                           bool knomial) noexcept {
  RankExchangeNodeSet neighbours = 0;
  for (const RankExchangeTree tree : {RankExchangeTree::kFlat, RankExchangeTree::kKnomial}) {
    if (tree == RankExchangeTree::kKnomial && !knomial) break;
    neighbours |= ChildrenIn(tree, node, node_count);
    if (node != 0) neighbours |= NodeBit(ParentIn(tree, node));
  }
  return neighbours;
}

}  // namespace ringd

#endif  // RINGD_PROTO_RANK_EXCHANGE_RANK_EXCHANGE_TREE_H_
