#include "proto/rank_exchange/rank_exchange_tree.h"

#include <catch2/catch.hpp>

#include "proto/rank_exchange/rank_exchange_segment.h"

namespace ringd {
namespace {

RankExchangeNodeSet Nodes(std::initializer_list<std::uint32_t> nodes) {
  RankExchangeNodeSet set = 0;
  for (const std::uint32_t node : nodes) set |= NodeBit(node);
  return set;
}

TEST_CASE("RankExchangeTree: every node but the hub has one parent, before it, and is its child") {
  for (const RankExchangeTree tree : {RankExchangeTree::kFlat, RankExchangeTree::kKnomial}) {
    for (std::uint32_t count = 2; count <= kRankExchangeMostNodes; ++count) {
      INFO("tree " << static_cast<int>(tree) << ", " << count << " nodes");
      RankExchangeNodeSet all = NodeBit(0);
      for (std::uint32_t node = 0; node < count; ++node) {
        RankExchangeNodeSet children = ChildrenIn(tree, node, count);
        CHECK((all & children) == 0);
        all |= children;
        while (children != 0) {
          const std::uint32_t child = TakeLowest(children);
          CHECK(child > node);
          CHECK(ParentIn(tree, child) == node);
        }
      }
      CHECK(all == (RankExchangeNodeSet{1} << count) - 1);
    }
  }
}

TEST_CASE(
    "RankExchangeTree: the k-nomial tree has the base of four, and two levels up to 16 nodes") {
  constexpr RankExchangeTree kTree = RankExchangeTree::kKnomial;
  CHECK(ChildrenIn(kTree, 0, 16) == Nodes({1, 2, 3, 4, 8, 12}));
  CHECK(ChildrenIn(kTree, 4, 16) == Nodes({5, 6, 7}));
  CHECK(ChildrenIn(kTree, 12, 14) == Nodes({13}));
  CHECK(ChildrenIn(kTree, 3, 16) == 0);
  for (std::uint32_t count = 6; count <= 16; ++count) CHECK(DepthOf(kTree, count) == 2);
  CHECK(LoadOf(kTree, 8) == 4);
  CHECK(LoadOf(kTree, 16) == 6);
  // Up to five nodes it is the flat one.
  for (std::uint32_t count = 2; count <= 5; ++count) {
    CHECK(ChildrenIn(kTree, 0, count) == ChildrenIn(RankExchangeTree::kFlat, 0, count));
  }
  CHECK(DepthOf(RankExchangeTree::kFlat, 16) == 1);
  CHECK(LoadOf(RankExchangeTree::kFlat, 16) == 15);
}

TEST_CASE("RankExchangeTree: neighbours are so of each other, and the hub is everybody's") {
  for (const bool knomial : {false, true}) {
    for (std::uint32_t node = 0; node < 16; ++node) {
      for (std::uint32_t other = 0; other < 16; ++other) {
        const bool near = (NeighboursOf(node, 16, knomial) & NodeBit(other)) != 0;
        CHECK(near == ((NeighboursOf(other, 16, knomial) & NodeBit(node)) != 0));
        if (node == 0 || other == 0) CHECK(near == (node != other));
      }
    }
  }
  CHECK(NeighboursOf(5, 16, false) == Nodes({0}));
  CHECK(NeighboursOf(5, 16, true) == Nodes({0, 4}));
  CHECK(NeighboursOf(4, 8, true) == Nodes({0, 5, 6, 7}));
}

}  // namespace
}  // namespace ringd
