// An operation that connects two nodes.
#ifndef RINGD_TESTS_BACKENDS_TWO_NODES_H_
#define RINGD_TESTS_BACKENDS_TWO_NODES_H_

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/backends/backend_world.h"

namespace ringd {

// Sums ones on both nodes: a ring's messages each way, several if `elements` are many.
inline void AddOnBothNodes(BackendWorld& world, std::uint32_t sequence = 0,
                           std::size_t elements = 100'000) {
  std::vector<std::vector<float>> buffers(2, std::vector<float>(elements, 1.0F));
  for (int node = 0; node < 2; ++node) {
    auto& buffer = buffers[static_cast<std::size_t>(node)];
    REQUIRE(world.at(node).TryPost(AllReduce({1, sequence}, DataType::kFloat32, ReduceOp::kSum,
                                             buffer.data(), buffer.size())));
  }
  REQUIRE(world.RunUntilCompleted(sequence + 1));
  CHECK(buffers[0][0] == 2.0F);
}

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_TWO_NODES_H_
