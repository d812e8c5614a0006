// Executions whose results reducers copy behind: at once, slowly, never, or until they are given
// up.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "daemon/execution/reducer_pool.h"
#include "tests/daemon/execution/helped_nodes.h"

namespace ringd {
namespace {

using Speed = SteppedReducers::Speed;

constexpr std::size_t kLarge = (std::size_t{2} << 20) + 4096;

Job LargeJob(std::vector<int> ranks = {3, 2}) {
  Job job;
  job.ranks = std::move(ranks);
  job.metas = {Meta(DataType::kFloat32, ReduceOp::kAverage, kLarge)};
  return job;
}

// Steps the network, and nothing else, until the node's operation has ended.
bool StepUntilCompleted(World& world, int node, CollectiveOutcome outcome) {
  Completion completion[1];
  for (int step = 0; step < 1'000'000; ++step) {
    if (world.network().at(node).Poll(completion) == 1) return completion[0].outcome == outcome;
    world.network().Step();
  }
  return false;
}

TEST_CASE("Execution: whoever copies the results, all ranks of all nodes get the same bits") {
  int copied_by_engine = 0;
  int told = 0;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    INFO("seed " << seed);
    const Job job = AnyAverages(seed, 2, kLarge);
    World alone(job, seed, nullptr);
    REQUIRE(alone.Run());
    for (const Speed speed : {Speed::kNever, Speed::kAtOnce, Speed::kRandom}) {
      SteppedReducers reducers(speed, seed);
      World world(job, seed, &reducers);
      REQUIRE(world.Run([&] { reducers.Step(); }));
      CHECK(reducers.offered == 2 * static_cast<int>(job.ranks.size()));
      CHECK(world.EqualsAllOf(alone));
      if (speed == Speed::kNever) CHECK(world.copied_by_engine > 0);
      if (speed == Speed::kRandom) copied_by_engine += world.copied_by_engine;
      told += reducers.told;
    }
    ReducerPool pool(2);
    World threads(job, seed, &pool);
    REQUIRE(threads.Run());
    CHECK(threads.EqualsAllOf(alone));
  }
  CHECK(copied_by_engine > 0);
  CHECK(told > 0);
}

TEST_CASE("Execution: what travels on does not wait for copies, and the result waits for all") {
  const Job job = LargeJob({2, 3, 2});
  World alone(job, 1, nullptr);
  REQUIRE(alone.Run());
  SteppedReducers reducers(Speed::kNever, 1);
  World world(job, 1, &reducers);
  for (int node = 0; node < 3; ++node) REQUIRE(world.Post(node));
  // Nobody has copied anything when all nodes have received and sent all.
  for (int node = 0; node < 3; ++node) {
    REQUIRE(StepUntilCompleted(world, node, CollectiveOutcome::kDone));
  }
  CHECK_FALSE(world.EqualsAllOf(alone));
  for (int node = 0; node < 3; ++node) {
    Execution& execution = *world.at(node).execution;
    CHECK_FALSE(execution.InPlace());
    while (execution.CopyPiece()) {
    }
    CHECK(execution.InPlace());
    CHECK(execution.Quiet());
  }
  CHECK(world.EqualsAllOf(alone));
  CHECK(reducers.wakes == 0);
}

TEST_CASE(
    "Execution: the engine is woken for the piece that a reducer is amid, and only for that") {
  SteppedReducers reducers(Speed::kRandom, 1);
  World world(LargeJob(), 1, &reducers);
  for (int node = 0; node < 2; ++node) REQUIRE(world.Post(node));
  for (int node = 0; node < 2; ++node) {
    REQUIRE(StepUntilCompleted(world, node, CollectiveOutcome::kDone));
  }
  while (reducers.claimed() < 3) reducers.Step();
  for (int node = 0; node < 2; ++node) {
    while (world.at(node).execution->CopyPiece()) {
    }
  }
  const bool first = world.at(0).execution->InPlace();
  const bool second = world.at(1).execution->InPlace();
  CHECK_FALSE((first && second));
  const int wakes = reducers.wakes;
  while (reducers.claimed() > 0) reducers.FinishOne();
  CHECK(reducers.wakes > wakes);
  CHECK(world.at(0).execution->InPlace());
  CHECK(world.at(1).execution->InPlace());
}

TEST_CASE(
    "Execution: one given up amid copies is quiet when those end, and then nothing is written") {
  int given_up_amid = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    SteppedReducers reducers(Speed::kRandom, seed);
    World world(LargeJob({4, 5}), seed, &reducers);
    for (int node = 0; node < 2; ++node) REQUIRE(world.Post(node));
    const int node = static_cast<int>(seed % 2);
    Node& mine = world.at(node);
    // Into the results, of which there are more than the reducers have begun.
    for (int step = 0; reducers.told < static_cast<int>(seed) || reducers.claimed() < 2; ++step) {
      REQUIRE(step < 100'000);
      world.network().Step();
      reducers.Step();
    }
    Execution& execution = *mine.execution;
    // As a dead rank of this node ends it.
    world.network().at(node).Abort("a rank was killed");
    execution.WithdrawWork();
    REQUIRE(StepUntilCompleted(world, node, CollectiveOutcome::kAborted));
    CHECK_FALSE(execution.CopyPiece());
    const bool amid = !execution.Quiet();
    const int wakes = reducers.wakes;
    while (reducers.claimed() > 0) reducers.FinishOne();
    CHECK(execution.Quiet());
    if (amid) CHECK(reducers.wakes > wakes);
    const bool has_results = mine.sources != mine.inputs;
    given_up_amid += amid && has_results ? 1 : 0;
    const auto then = mine.sources;
    for (int step = 0; step < 100; ++step) {
      world.network().Step();
      reducers.Step();
      CHECK_FALSE(execution.CopyPiece());
    }
    const bool unchanged = mine.sources == then;
    CHECK(unchanged);
    while (reducers.claimed() > 0) reducers.FinishOne();  // of the other node
  }
  CHECK(given_up_amid > 5);
}

TEST_CASE("Execution: given up at any moment, threads write nothing once it is quiet") {
  ReducerPool pool(2);
  for (unsigned seed = 1; seed <= 20; ++seed) {
    World world(LargeJob({4, 3}), seed, &pool);
    for (int node = 0; node < 2; ++node) REQUIRE(world.Post(node));
    for (unsigned step = 0; step < 40 * seed; ++step) world.network().Step();
    for (int node = 0; node < 2; ++node) {
      Node& mine = world.at(node);
      world.network().at(node).Abort("the test ends");
      if (seed % 2 == 0) {
        mine.execution->WithdrawWork();
        while (!mine.execution->Quiet()) std::this_thread::yield();
      } else {
        mine.execution.reset();
      }
      // Whoever still read or wrote would be found here, by a sanitizer at the latest.
      for (Bytes& source : mine.sources) std::memset(source.data(), 1, source.size());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (int node = 0; node < 2; ++node) {
      for (const Bytes& source : world.at(node).sources) {
        const bool untouched = source == Bytes(source.size(), std::byte{1});
        CHECK(untouched);
      }
    }
  }
}

TEST_CASE("Execution: few results are copied as they come, with reducers or not") {
  SteppedReducers reducers(Speed::kNever, 1);
  Job job = LargeJob({2, 1});
  job.metas[0] = Meta(DataType::kFloat32, ReduceOp::kSum, kLarge / 2);
  World world(job, 1, &reducers);
  for (int node = 0; node < 2; ++node) REQUIRE(world.Post(node));
  for (int node = 0; node < 2; ++node) {
    REQUIRE(StepUntilCompleted(world, node, CollectiveOutcome::kDone));
    CHECK(world.at(node).execution->InPlace());
  }
  CHECK(reducers.offered == 1);  // the first node's sums
}

}  // namespace
}  // namespace ringd
