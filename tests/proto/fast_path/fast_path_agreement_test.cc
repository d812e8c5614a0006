// Whatever the ranks leave out or bring late: an operation is completed by all that have brought their part, or by
// none.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "tests/proto/fast_path/fast_path_nodes.h"

namespace ringd {
namespace {

using testing::FastPathNodes;
using testing::Floats;

enum class End : char { kWentTheOtherWay = 'o', kCompleted = 'c', kWrongSum = 'w', kHung = 'h' };

End Run(FastPathExchange& member, std::uint64_t step, float value, float sum) {
  std::uint32_t cell = 0;
  FastPathOutcome outcome = member.Contribute(Floats({1, step}, {value}), cell);
  if (outcome == FastPathOutcome::kGivenUp) return End::kWentTheOtherWay;
  const auto end = Clock::now() + std::chrono::seconds(20);
  while ((outcome = member.Look(cell)) == FastPathOutcome::kPending) {
    if (Clock::now() > end) return End::kHung;
    if (member.BecomeDriver()) {
      if (member.Look(cell) == FastPathOutcome::kPending) member.Drive(FastPathExchange::kTurn);
      member.StopDriving();
    } else {
      member.Sleep(cell, std::chrono::milliseconds(5));
    }
  }
  if (outcome == FastPathOutcome::kGivenUp) {
    member.Depart(cell);
    return End::kWentTheOtherWay;
  }
  float result = 0;
  const FastPathDestination destination{&result, 1};
  member.Take(cell, DataType::kFloat32, {&destination, 1}, {});
  return result == sum ? End::kCompleted : End::kWrongSum;
}

TEST_CASE("All complete an operation, or none does") {
  constexpr std::uint64_t kSteps = 60;
  const std::uint32_t seed = GENERATE(1U, 2U, 3U, 4U, 5U, 6U);
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const std::uint32_t node_count = 2 + seed % 3;
  const std::uint32_t member_count = 1 + random() % 2;
  const std::uint32_t ranks = node_count * member_count;
  FastPathNodes nodes(node_count, member_count);

  // What each rank does in each step: brings its part, brings it late by so many ms, or does not.
  constexpr int kNotAtAll = -1;
  std::vector<std::vector<int>> plans(ranks, std::vector<int>(kSteps, 0));
  // Around the patience, at which nodes and root may differ.
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
      std::this_thread::sleep_for(std::chrono::milliseconds(70));
    }
  });
  std::vector<std::future<std::vector<End>>> running;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    running.push_back(std::async(std::launch::async, [&nodes, &plans, rank, ranks, member_count] {
      FastPathExchange& member = nodes.Member(rank / member_count, rank % member_count);
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

}  // namespace
}  // namespace ringd
