// Reduce-scatters and all-gathers over a network that delays and reorders.
#include "backends/collectives/ring.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/backends/collectives/fake_network.h"
#include "tests/backends/part_accessor.h"

namespace ringd {
namespace {

using Parted = PartedOperation<std::int32_t>;

// Some operations with blocks of any sizes, in flight at once and posted in another order on every
// node. Empty if each node ended with what it should have.
std::string RunRandomly(unsigned seed) {
  std::mt19937 random(seed);
  const int node_count = 1 + static_cast<int>(random() % 9);
  constexpr std::uint32_t kOperations = 12;
  FakeNetwork network(node_count, TinyChunks(), seed);
  std::vector<std::unique_ptr<Parted>> operations;
  std::vector<std::vector<std::uint32_t>> to_post(static_cast<std::size_t>(node_count));
  for (std::uint32_t i = 0; i < kOperations; ++i) {
    std::vector<std::size_t> counts;
    for (int node = 0; node < node_count; ++node) {
      counts.push_back(random() % 3 == 0 ? 0 : random() % (random() % 4 == 0 ? 1000 : 40));
    }
    const auto kind =
        random() % 2 == 0 ? CollectiveKind::kReduceScatter : CollectiveKind::kAllGather;
    operations.push_back(
        std::make_unique<Parted>(OperationId{i, 0}, kind, DataType::kInt32, ReduceOp::kSum, counts,
                                 random() % 20, static_cast<int>(random() % 4), random() % 2 == 0));
    for (auto& list : to_post) list.insert(list.begin() + random() % (list.size() + 1), i);
  }
  std::uint32_t completed = 0;
  const std::uint32_t all = kOperations * static_cast<std::uint32_t>(node_count);
  for (int step = 0; step < 1'000'000 && completed < all; ++step) {
    const int node = static_cast<int>(random() % static_cast<unsigned>(node_count));
    auto& list = to_post[static_cast<std::size_t>(node)];
    if (random() % 16 == 0 && !list.empty()) {
      if (!network.at(node).TryPost(operations[list.back()]->Request(node))) return "not posted";
      list.pop_back();
    }
    network.Step();
    Completion completion[1];
    if (network.at(node).Poll(completion) == 0) continue;
    if (completion[0].outcome != CollectiveOutcome::kDone) return "not done";
    ++completed;
  }
  if (completed < all) return "not completed";
  for (const auto& operation : operations) {
    for (int node = 0; node < node_count; ++node) {
      if (std::string problem = operation->ProblemOf(node); !problem.empty()) return problem;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("Ring: any order of messages and posts gives each node its parts") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    REQUIRE(RunRandomly(seed) == "");
  }
}

TEST_CASE("Ring: a node whose part is done early sends nothing before its successor has posted") {
  // Node 0 alone has a block, so nobody else's input is needed to end an all-gather there.
  FakeNetwork network(3, TinyChunks(), 1);
  std::vector<std::unique_ptr<Parted>> operations;
  for (std::uint32_t i = 0; i < 4; ++i) {
    operations.push_back(std::make_unique<Parted>(OperationId{i, 0}, CollectiveKind::kAllGather,
                                                  DataType::kInt32, ReduceOp::kSum,
                                                  std::vector<std::size_t>{16, 0, 0}, 0, 0, false));
    REQUIRE(network.at(0).TryPost(operations.back()->Request(0)));
  }
  for (int step = 0; step < 100; ++step) network.Step();
  Completion completion[4];
  CHECK(network.at(0).Poll(completion) == 0);
  CHECK(network.at(1).Statistics().messages_early == 0);
  for (const auto& operation : operations) {
    for (int node = 1; node < 3; ++node)
      REQUIRE(network.at(node).TryPost(operation->Request(node)));
  }
  for (int step = 0; step < 1000; ++step) network.Step();
  for (int node = 0; node < 3; ++node) {
    CHECK(network.at(node).Poll(completion) == 4);
    for (const auto& operation : operations) CHECK(operation->ProblemOf(node) == "");
  }
}

}  // namespace ringd
