// Executions of tensors that the ranks copy into their arenas, and out of them, piece by piece
// meanwhile.
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "daemon/execution/reducer_pool.h"
#include "tests/daemon/execution/helped_nodes.h"

namespace ringd {
namespace {

constexpr std::size_t kLarge = (std::size_t{2} << 20) + 8192;

// A float tensor of so many pieces, of two ranks on the first node and one on the second.
Job StagedJob(std::size_t pieces) {
  Job job;
  job.ranks = {2, 1};
  job.metas = {Meta(DataType::kFloat32, ReduceOp::kSum, pieces * kLeastStagingPieceBytes)};
  job.staged = true;
  return job;
}

TEST_CASE(
    "Execution: sources that come in pieces, in any order, give the bits of those that are there") {
  using Speed = SteppedReducers::Speed;
  int fetched_meanwhile = 0;
  for (unsigned seed = 1; seed <= 16; ++seed) {
    INFO("seed " << seed);
    Job job = AnyAverages(seed, 1, kLarge);
    World at_once(job, seed, nullptr);
    REQUIRE(at_once.Run());
    job.staged = true;
    for (const Speed speed : {Speed::kNever, Speed::kAtOnce, Speed::kRandom}) {
      SteppedReducers reducers(speed, seed);
      World world(job, seed, speed == Speed::kNever ? nullptr : &reducers);
      std::mt19937 random(seed);
      REQUIRE(world.Run([&] {
        if (random() % 8 == 0 && world.StageOne()) reducers.Tell();
        reducers.Step();
        if (random() % 16 == 0) fetched_meanwhile += world.Fetch();
      }));
      CHECK(world.EqualsAllOf(at_once));
      CHECK(world.FetchedAll());
    }
  }
  CHECK(fetched_meanwhile > 100);
}

TEST_CASE("Execution: sources that come in pieces, with the help of threads") {
  ReducerPool pool(2);
  for (unsigned seed = 1; seed <= 8; ++seed) {
    INFO("seed " << seed);
    Job job = AnyAverages(seed, 1, kLarge);
    World at_once(job, seed, nullptr);
    REQUIRE(at_once.Run());
    job.staged = true;
    World world(job, seed, &pool);
    std::mt19937 random(seed);
    REQUIRE(world.Run([&] {
      if (random() % 8 == 0 && world.StageOne()) pool.Tell();
    }));
    CHECK(world.EqualsAllOf(at_once));
    CHECK(world.FetchedAll());
  }
}

TEST_CASE("Execution: nothing of a range is read before all its ranks' pieces are there") {
  const Job job = StagedJob(4);
  World world(job, 1, nullptr);
  Execution& execution = *world.at(0).execution;
  const auto& progress = world.at(0).staged->progress;
  const Bytes partial(kChunkBytes);
  // A range at the border of pieces 1 and 2 needs both, of both ranks.
  const std::size_t begin = 2 * kLeastStagingPieceBytes - kChunkBytes / 2;
  const std::size_t end = begin + kChunkBytes;
  const auto refused = [&] {
    return execution.Input(begin, end) == nullptr &&
           !execution.AddInput(begin, end, partial.data()) &&
           execution.AddLastInput(begin, end, partial.data()) == nullptr;
  };
  CHECK(refused());
  progress[0]->source = AllStagingPieces(ByteCount(job.metas[0]));
  progress[1]->source = 0b1011;
  CHECK(refused());
  progress[1]->source = 0b0110;
  CHECK(execution.Input(begin, end) != nullptr);
  CHECK(execution.Input(0, kChunkBytes) == nullptr);
}

TEST_CASE("Execution: a piece is told when the last byte of it is final, of each rank its own") {
  const Job job = StagedJob(2);
  World world(job, 1, nullptr);
  Execution& execution = *world.at(0).execution;
  const auto& progress = world.at(0).staged->progress;
  const Bytes result(kLeastStagingPieceBytes);
  const std::size_t middle = kLeastStagingPieceBytes;
  // Around the border first: neither piece is whole.
  execution.OnResult(middle - 64, middle + 64, result.data(), false);
  execution.OnResult(0, middle - 128, result.data(), false);
  CHECK(progress[0]->result == 0);
  execution.OnResult(middle - 128, middle - 64, result.data(), false);
  CHECK(progress[0]->result == 1);
  CHECK(progress[1]->result == 1);
  execution.OnResult(middle + 64, 2 * middle, result.data(), false);
  CHECK(progress[0]->result == 3);
}

TEST_CASE("LocalSums: a cell whose sources are not there stays for later, and closing ends it") {
  SteppedReducers reducers(SteppedReducers::Speed::kRandom, 1);
  const Job job = StagedJob(8);
  World world(job, 1, nullptr);
  Node& node = world.at(0);
  const BucketLayout& layout = *node.layout;
  std::vector<TensorBuffers> buffers;
  std::vector<StagedBuffer> in_pieces;
  for (std::size_t m = 0; m < 2; ++m) {
    buffers.push_back({node.sources[m].data(), node.sources[m].data()});
    in_pieces.push_back({.tensor = 0,
                         .member = m,
                         .progress = node.staged->progress[m].get(),
                         .waiters = &node.staged->bell,
                         .source = true,
                         .result = false});
  }
  const BucketMemory memory(layout, 2, buffers, -1);
  const StagedTensors staged(layout, in_pieces);
  Bytes buffer(layout.bytes());
  const RingLayout ring(TraitsOf(CollectiveKind::kAllReduce),
                        BlockMap::Even(layout.bytes(), 2, kChunkBytes), 0);
  LocalSums sums(memory, &staged, buffer.data(), ring, false, reducers);
  CHECK_FALSE(sums.Claim().has_value());
  CHECK(sums.MayGrow());
  CHECK(sums.Quiet());
  for (const auto& progress : node.staged->progress) progress->source = 1;
  const auto cell = sums.Claim();
  REQUIRE(cell.has_value());
  // The own block's first chunk; of the other block nothing is there, so it comes no further.
  CHECK(*cell == 0);
  CHECK_FALSE(sums.Claim().has_value());
  CHECK(sums.MayGrow());
  sums.Close();
  CHECK_FALSE(sums.MayGrow());
  CHECK_FALSE(sums.Quiet());
  sums.Finish(*cell);
  CHECK(sums.Quiet());
  CHECK(reducers.wakes == 1);
}

}  // namespace
}  // namespace ringd
