// Executions whose input reducers sum ahead: in time, too late, and anything between.
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

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr std::size_t kLarge = (std::size_t{1} << 20) + 4096;

TEST_CASE("Execution: helped or not, all types and operations give the same bits") {
  using Speed = SteppedReducers::Speed;
  int wakes = 0;
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (const ReduceOp op : kOps) {
      INFO(Name(static_cast<DataType>(type)) << " " << Name(op));
      const auto seed = static_cast<unsigned>(type * 10 + static_cast<int>(op));
      Job job;
      job.ranks = {4, 2};  // Of the first node's results there is enough to copy them behind, too.
      job.metas = {Meta(static_cast<DataType>(type), op, kLarge)};
      if (seed % 3 == 0) job.metas[0].prescale = 0.37;
      if (seed % 2 == 0) job.metas[0].postscale = 1.7;
      job.in_place = seed % 4 != 0;
      World alone(job, seed, nullptr);
      REQUIRE(alone.Run());
      CHECK(alone.EqualsAllOf(alone));
      for (const Speed speed : {Speed::kNever, Speed::kAtOnce, Speed::kRandom}) {
        if (speed == Speed::kNever && op != ReduceOp::kSum) continue;
        if (speed == Speed::kRandom && op != ReduceOp::kSum && op != ReduceOp::kProduct) continue;
        SteppedReducers reducers(speed, seed);
        World world(job, seed, &reducers);
        REQUIRE(world.Run([&] { reducers.Step(); }));
        CHECK(reducers.offered == 3);
        CHECK((reducers.finished > 0) == (speed != Speed::kNever));
        CHECK(world.EqualsAllOf(alone));
        wakes += reducers.wakes;
      }
    }
  }
  // The engine came to cells that were being summed, and was told.
  CHECK(wakes > 100);
}

TEST_CASE("Execution: buckets of several tensors over several nodes, with the help of threads") {
  ReducerPool pool(2);
  for (unsigned seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    const Job job = AnyAverages(seed, 1, kLarge);
    World alone(job, seed, nullptr);
    REQUIRE(alone.Run());
    World world(job, seed, &pool);
    REQUIRE(world.Run());
    CHECK(world.EqualsAllOf(alone));
  }
}

TEST_CASE(
    "Execution: small ones, broadcasts and those of one local rank are nobody's to sum ahead") {
  SteppedReducers reducers(SteppedReducers::Speed::kAtOnce, 1);
  Job job;
  job.ranks = {1, 1};
  job.metas = {Meta(DataType::kFloat32, ReduceOp::kSum, kLarge)};
  CHECK(World(job, 1, &reducers).Run());
  job.ranks = {3, 2};
  job.metas = {Meta(DataType::kFloat32, ReduceOp::kSum, kLarge / 2)};
  CHECK(World(job, 1, &reducers).Run());
  job.metas = {Meta(DataType::kFloat32, ReduceOp::kSum, kLarge)};
  job.metas[0].kind = CollectiveKind::kBroadcast;
  World broadcast(job, 1, &reducers);
  REQUIRE(broadcast.Post(0));
  CHECK(reducers.offered == 0);
}

TEST_CASE("Execution: one that is given up amid a sum is quiet when that ends, inputs intact") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    SteppedReducers reducers(SteppedReducers::Speed::kRandom, seed);
    Job job;
    job.metas = {Meta(DataType::kFloat32, ReduceOp::kSum, kLarge)};
    World world(job, seed, &reducers);
    const int starter = static_cast<int>(seed % 2);
    REQUIRE(world.Post(starter));
    for (unsigned steps = 0; steps < 2 * seed || reducers.claimed() == 0; ++steps) {
      REQUIRE(steps < 1000);
      world.network().Step();
      reducers.Step();
    }
    Execution& execution = *world.at(starter).execution;
    world.network().at(starter).Cancel(execution.id());
    execution.WithdrawWork();
    Completion completion[1];
    for (int step = 0; step < 100'000 && world.network().at(starter).Poll(completion) == 0; ++step)
      world.network().Step();
    CHECK_FALSE(execution.Quiet());
    const int wakes = reducers.wakes;
    while (reducers.claimed() > 0) reducers.FinishOne();
    CHECK(execution.Quiet());
    CHECK(reducers.wakes > wakes);
    CHECK(world.at(starter).sources == world.at(starter).inputs);
  }
}

TEST_CASE("Execution: may be destroyed while threads sum for it") {
  ReducerPool pool(2);
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Job job;
    job.metas = {Meta(DataType::kFloat32, ReduceOp::kSum, kLarge)};
    World world(job, seed, &pool);
    REQUIRE(world.Post(0));
    if (seed % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20 * seed));
    world.network().at(0).Abort("the test ends");
    world.at(0).execution.reset();
    // Whoever still read or wrote would be found here, by a sanitizer at the latest.
    for (Bytes& source : world.at(0).sources) std::memset(source.data(), 1, source.size());
  }
}

}  // namespace
}  // namespace ringd
