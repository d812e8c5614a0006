// Whatever the ranks leave out or bring late: an operation is completed by all that have brought
// their part, or by none.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "tests/proto/rank_exchange/rank_exchange_nodes.h"

namespace ringd {
namespace {

using testing::Floats;
using testing::RankExchangeNodes;

enum class End : char { kWentTheOtherWay = 'o', kCompleted = 'c', kWrongSum = 'w', kHung = 'h' };

End Run(RankExchange& member, std::uint64_t step, float value, float sum,
        std::chrono::seconds patience = std::chrono::seconds(20)) {
  std::uint32_t cell = 0;
  RankExchangeOutcome outcome = member.Contribute(Floats({1, step}, {value}), cell);
  if (outcome == RankExchangeOutcome::kGivenUp) return End::kWentTheOtherWay;
  const auto end = Clock::now() + patience;
  while ((outcome = member.Look(cell)) == RankExchangeOutcome::kPending) {
    if (Clock::now() > end) return End::kHung;
    if (member.BecomeDriver()) {
      if (member.Look(cell) == RankExchangeOutcome::kPending) member.Drive(RankExchange::kTurn);
      member.StopDriving();
    } else {
      member.Sleep(cell, std::chrono::milliseconds(5));
    }
  }
  if (outcome == RankExchangeOutcome::kGivenUp) {
    member.Depart(cell);
    return End::kWentTheOtherWay;
  }
  float result = 0;
  member.Take(cell, DataType::kFloat32, &result, 1, {});
  return result == sum ? End::kCompleted : End::kWrongSum;
}

TEST_CASE("All complete an operation, or none does") {
  constexpr std::uint64_t kSteps = 60;
  const std::uint32_t seed = GENERATE(1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  // The last two by the k-nomial tree.
  const bool knomial = seed > 6;
  const std::uint32_t node_count = knomial ? seed : 2 + seed % 3;
  const std::uint32_t member_count = 1 + random() % 2;
  const std::uint32_t ranks = node_count * member_count;
  RankExchangeNodes nodes(node_count, member_count, kRankExchangeMostBytesOfMany,
                          knomial ? 0U : static_cast<std::uint32_t>(kRankExchangeMostBytesOfMany));

  // What each rank does in each step: brings its part, brings it late by so many ms, or does not.
  constexpr int kNotAtAll = -1;
  std::vector<std::vector<int>> plans(ranks, std::vector<int>(kSteps, 0));
  // Around the patience, at which nodes and hub may differ.
  std::uniform_int_distribution<int> late(80, 180);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    if (random() % 6 != 0) continue;
    plans[random() % ranks][step] = random() % 4 == 0 ? kNotAtAll : late(random);
  }
  std::atomic<bool> stop{false};
  auto ringd = std::async(std::launch::async, [&] {
    while (!stop) {
      for (std::uint32_t node = 0; node < node_count; ++node) {
        if (!nodes.Ringd(node).BecomeDriver()) continue;
        nodes.Ringd(node).Drive(std::chrono::milliseconds(0));
        nodes.Ringd(node).StopDriving();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(7));
    }
  });
  std::vector<std::future<std::vector<End>>> running;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    running.push_back(std::async(std::launch::async, [&nodes, &plans, rank, ranks, member_count] {
      RankExchange& member = nodes.Member(rank / member_count, rank % member_count);
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      std::vector<End> ends;
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const int plan = plans[rank][step];
        if (plan > 0) std::this_thread::sleep_for(std::chrono::milliseconds(plan));
        ends.push_back(plan == kNotAtAll ? End::kWentTheOtherWay
                                         : Run(member, step, static_cast<float>(rank + 1), sum));
      }
      return ends;
    }));
  }
  std::vector<std::vector<End>> ends;
  for (auto& rank : running) ends.push_back(rank.get());
  stop = true;
  ringd.get();

  std::size_t completed = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    INFO("step " << step);
    bool somebody_left_it_out = false;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      CHECK(ends[rank][step] == ends[0][step]);
      somebody_left_it_out = somebody_left_it_out || plans[rank][step] == kNotAtAll;
    }
    const bool done = ends[0][step] == End::kCompleted;
    CHECK((done || ends[0][step] == End::kWentTheOtherWay));
    CHECK_FALSE((done && somebody_left_it_out));
    completed += done ? 1U : 0U;
  }
  CHECK(completed > kSteps / 3);
}

// Who can't know what became of an operation if the node has lost its parent.
RankExchangeNodeSet Below(std::uint32_t node, std::uint32_t node_count) {
  RankExchangeNodeSet below = NodeBit(node);
  RankExchangeNodeSet children = ChildrenIn(RankExchangeTree::kKnomial, node, node_count);
  while (children != 0) below |= Below(TakeLowest(children), node_count);
  return below;
}

TEST_CASE("Wherever a connection ends, nobody gives up what another one has completed") {
  constexpr std::uint64_t kSteps = 3000;
  constexpr std::uint32_t kNodeCount = 8;
  const std::uint32_t seed = GENERATE(range(1U, 13U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  // One number takes the k-nomial tree or the flat one.
  RankExchangeNodes nodes(kNodeCount, 1, kRankExchangeMostBytesOfMany, seed % 2 == 0 ? 0U : 4U);
  const std::uint32_t lower = 1 + random() % (kNodeCount - 1);
  const bool to_root = random() % 2 == 0;
  const std::uint32_t upper = to_root ? 0 : ParentIn(RankExchangeTree::kKnomial, lower);
  const bool upper_cuts = random() % 2 == 0;
  const auto after = std::chrono::microseconds(1000 + random() % 20'000);

  std::atomic<bool> stop{false};
  auto ringd = std::async(std::launch::async, [&] {
    while (!stop) {
      for (std::uint32_t node = 0; node < kNodeCount; ++node) {
        if (!nodes.Ringd(node).BecomeDriver()) continue;
        nodes.Ringd(node).Drive(std::chrono::milliseconds(0));
        nodes.Ringd(node).StopDriving();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::vector<std::future<std::vector<End>>> running;
  for (std::uint32_t node = 0; node < kNodeCount; ++node) {
    running.push_back(std::async(std::launch::async, [&nodes, node] {
      std::vector<End> ends;
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        ends.push_back(Run(nodes.Member(node), step, static_cast<float>(node + 1), 36,
                           std::chrono::seconds(1)));
        if (ends.back() != End::kCompleted) break;
      }
      return ends;
    }));
  }
  std::this_thread::sleep_for(after);
  const int cut = upper_cuts ? nodes.Connection(upper, lower) : nodes.Connection(lower, upper);
  ::shutdown(cut, SHUT_RDWR);
  std::vector<std::vector<End>> ends;
  for (auto& node : running) ends.push_back(node.get());
  // All hear of the end.
  const auto until = Clock::now() + std::chrono::seconds(20);
  for (std::uint32_t node = 0; node < kNodeCount; ++node) {
    while (nodes.Member(node).Usable() && Clock::now() < until) std::this_thread::yield();
    CHECK_FALSE(nodes.Member(node).Usable());
  }
  stop = true;
  ringd.get();

  std::size_t longest = 0;
  for (const auto& of_node : ends) longest = std::max(longest, of_node.size());
  REQUIRE(longest < kSteps);
  const RankExchangeNodeSet unknowing = Below(lower, kNodeCount);
  for (std::uint64_t step = 0; step < longest; ++step) {
    INFO("step " << step);
    bool completed = false;
    bool given_up = false;
    for (std::uint32_t node = 0; node < kNodeCount; ++node) {
      if (step >= ends[node].size()) continue;
      INFO("node " << node);
      const End end = ends[node][step];
      CHECK(end != End::kWrongSum);
      if (end == End::kHung) CHECK((unknowing & NodeBit(node)) != 0);
      completed = completed || end == End::kCompleted;
      given_up = given_up || end == End::kWentTheOtherWay;
    }
    CHECK_FALSE((completed && given_up));
  }
}

}  // namespace
}  // namespace ringd
