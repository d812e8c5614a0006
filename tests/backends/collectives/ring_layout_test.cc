#include "backends/collectives/ring_layout.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace ringd {
namespace {

RingLayout LayoutOf(CollectiveKind kind, std::uint32_t nodes, std::uint32_t self) {
  return {TraitsOf(kind), BlockMap::Even(64 * 100, nodes, 64), self};
}

}  // namespace

TEST_CASE("RingLayout: what a node sends is what its successor receives") {
  for (std::uint32_t nodes = 2; nodes <= 9; ++nodes) {
    for (const auto kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather}) {
      for (std::uint32_t self = 0; self < nodes; ++self) {
        const RingLayout node = LayoutOf(kind, nodes, self);
        const RingLayout next = LayoutOf(kind, nodes, node.successor());
        CHECK(next.predecessor() == self);
        for (std::uint32_t step = 0; step < node.step_count(); ++step) {
          CHECK(next.SentBlock(step + 1) == node.SentBlock(step));
        }
      }
    }
  }
}

TEST_CASE(
    "RingLayout: a reduce-scatter alone ends with the own block, an all-gather begins there") {
  for (std::uint32_t nodes = 1; nodes <= 9; ++nodes) {
    for (std::uint32_t self = 0; self < nodes; ++self) {
      const RingLayout scatter = LayoutOf(CollectiveKind::kReduceScatter, nodes, self);
      CHECK(scatter.step_count() == nodes - 1);
      CHECK(scatter.reduce_steps() == nodes - 1);
      CHECK(scatter.SentBlock(nodes - 1) == self);
      const RingLayout gather = LayoutOf(CollectiveKind::kAllGather, nodes, self);
      CHECK(gather.step_count() == nodes - 1);
      CHECK(gather.reduce_steps() == 0);
      CHECK(gather.SentBlock(0) == self);
      const RingLayout both = LayoutOf(CollectiveKind::kAllReduce, nodes, self);
      CHECK(both.step_count() == 2 * (nodes - 1));
      CHECK(both.reduce_steps() == nodes - 1);
      CHECK(both.SentBlock(0) == self);
    }
  }
}

TEST_CASE("RingLayout: a pass needs each block once, and indices say step and chunk") {
  const RingLayout ring = LayoutOf(CollectiveKind::kAllReduce, 7, 3);
  std::vector<bool> needed(7);
  for (std::uint32_t step = 0; step < 7; ++step) needed[ring.SentBlock(step)] = true;
  CHECK(needed == std::vector<bool>(7, true));
  for (std::uint32_t step = 0; step < ring.step_count(); ++step) {
    for (std::uint32_t chunk = 0; chunk < ring.map().MaxChunkCount(); ++chunk) {
      const std::uint32_t index = ring.IndexOf(step, chunk);
      CHECK(index < ring.index_count());
      CHECK(ring.StepOf(index) == step);
      CHECK(ring.ChunkOf(index) == chunk);
    }
  }
}

TEST_CASE("RingLayout: a request's blocks are the map, or it is divided evenly") {
  CollectiveRequest request;
  request.kind = CollectiveKind::kAllGather;
  request.element_count = 100;
  const RingPlace place{.node_count = 2, .self = 1, .chunk_bytes = 64};
  CHECK(RingLayoutOf(request, place).map().Block(1) == ByteRange{256, 400});
  const std::vector<ByteRange> blocks = {{0, 12}, {12, 400}};
  request.blocks = blocks;
  CHECK(RingLayoutOf(request, place).map().Block(1) == blocks[1]);
  CHECK(RingLayoutOf(request, place).self() == 1);
}

}  // namespace ringd
