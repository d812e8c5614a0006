// Executions whose input reducers sum ahead: in time, too late, and anything between.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "daemon/execution/buffer_pool.h"
#include "daemon/execution/execution.h"
#include "daemon/execution/reducer_pool.h"
#include "tests/backends/collectives/fake_network.h"

namespace ringd {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::uint32_t kChunkBytes = 16 * 1024;

struct Job {
  std::vector<int> ranks = {3, 2};  // by node
  std::vector<TensorMeta> metas;
  bool in_place = true;

  int rank_count() const {
    int count = 0;
    for (const int ranks_here : ranks) count += ranks_here;
    return count;
  }
};

TensorMeta Meta(DataType type, ReduceOp op, std::size_t bytes) {
  TensorMeta meta;
  meta.dtype = type;
  meta.op = op;
  meta.shape = {static_cast<std::int64_t>(bytes / SizeOf(type))};
  return meta;
}

// Any numbers; of floats neither NaN nor infinite, nor so large that a product is: of them the top
// bit of the exponent is 0.
Bytes AnyValues(const TensorMeta& meta, std::mt19937& random) {
  Bytes bytes(ByteCount(meta));
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const auto value = static_cast<std::uint32_t>(random());
    std::memcpy(&bytes[i], &value, sizeof(value));
  }
  if (!IsFloatingPoint(meta.dtype)) return bytes;
  const std::size_t element = SizeOf(meta.dtype);
  for (std::size_t i = element - 1; i < bytes.size(); i += element) bytes[i] &= std::byte{0xBF};
  return bytes;
}

// Reducers whose every step is the test's.
class SteppedReducers final : public Reducers {
 public:
  enum class Speed { kNever, kAtOnce, kRandom };

  SteppedReducers(Speed speed, unsigned seed) : speed_(speed), random_(seed) {}

  void Offer(std::shared_ptr<ReducerWork> work) override {
    ++offered;
    works_.push_back(std::move(work));
    if (speed_ != Speed::kAtOnce) return;
    while (const auto part = works_.back()->Claim()) {
      works_.back()->Finish(*part);
      ++summed;
    }
  }
  void Withdraw(const ReducerWork& work) override {
    std::erase_if(works_, [&](const auto& offered_work) { return offered_work.get() == &work; });
  }
  void WakeEngine() noexcept override { ++wakes; }

  // Claims a part, or finishes one of those that are being done, which are three at most.
  void Step() {
    if (speed_ != Speed::kRandom) return;
    if (claimed_.size() < 3 && !works_.empty() && random_() % 2 == 0) {
      const auto& work = works_[random_() % works_.size()];
      if (const auto part = work->Claim()) claimed_.push_back({work, *part});
    } else if (!claimed_.empty()) {
      FinishOne();
    }
  }
  void FinishOne() {
    std::swap(claimed_[random_() % claimed_.size()], claimed_.back());
    claimed_.back().work->Finish(claimed_.back().part);
    claimed_.pop_back();
    ++summed;
  }
  std::size_t claimed() const { return claimed_.size(); }

  int offered = 0;
  int summed = 0;
  int wakes = 0;

 private:
  struct Claimed {
    std::shared_ptr<ReducerWork> work;
    std::size_t part;
  };
  const Speed speed_;
  std::mt19937 random_;
  std::vector<std::shared_ptr<ReducerWork>> works_;
  std::vector<Claimed> claimed_;
};

// A node's ranks, their memory, and the execution over it.
struct Node {
  Node(const Job& job, int self, BufferPool& pool, Reducers* reducers, std::mt19937& random) {
    std::vector<const TensorMeta*> metas;
    for (const TensorMeta& meta : job.metas) metas.push_back(&meta);
    layout = std::make_shared<const BucketLayout>(metas, job.rank_count());
    const int rank_count = job.ranks[static_cast<std::size_t>(self)];
    std::vector<TensorBuffers> buffers;
    for (const TensorMeta& meta : job.metas) {
      for (int m = 0; m < rank_count; ++m) {
        sources.push_back(AnyValues(meta, random));
        results.emplace_back(job.in_place ? 0 : sources.back().size());
        Bytes& destination = job.in_place ? sources.back() : results.back();
        buffers.push_back({sources.back().data(), destination.data()});
      }
    }
    inputs = sources;
    execution = std::make_unique<Execution>(
        OperationId{3, 0}, nullptr, layout,
        BucketMemory(*layout, rank_count, std::move(buffers), -1), Clock::now());
    execution->UseBuffer(pool.Acquire(layout->bytes()));
    if (reducers != nullptr) {
      execution->PrepareSums(*reducers, {.node_count = static_cast<std::uint32_t>(job.ranks.size()),
                                         .self = static_cast<std::uint32_t>(self),
                                         .chunk_bytes = kChunkBytes});
    }
  }

  std::shared_ptr<const BucketLayout> layout;
  std::vector<Bytes> sources;  // tensor * ranks + rank
  std::vector<Bytes> results;  // unless in place
  std::vector<Bytes> inputs;   // what the sources were
  std::unique_ptr<Execution> execution;
};

AlgorithmOptions Options() {
  AlgorithmOptions options;
  options.chunk_bytes = kChunkBytes;
  return options;
}

// All nodes of a job; the same seed gives the same values.
class World {
 public:
  World(const Job& job, unsigned seed, Reducers* reducers)
      : job_(job), network_(static_cast<int>(job.ranks.size()), Options(), seed) {
    std::mt19937 random(seed);
    nodes_.reserve(job.ranks.size());
    for (int node = 0; node < network_.node_count(); ++node) {
      nodes_.emplace_back(job, node, pool_, reducers, random);
    }
  }

  bool Post(int node) {
    Execution& execution = *at(node).execution;
    if (!network_.at(node).TryPost(execution.Request(NodeIndex(0)))) return false;
    execution.OfferSums();
    return true;
  }

  // Posts all and finishes them; between the network's steps `step()` is called.
  template <typename Step>
  bool Run(Step step) {
    for (int node = 0; node < network_.node_count(); ++node) {
      if (!Post(node)) return false;
    }
    const auto deadline = steady_clock::now() + kPatience;
    for (int node = 0; node < network_.node_count(); ++node) {
      Completion completion[1];
      while (network_.at(node).Poll(completion) == 0) {
        if (steady_clock::now() > deadline) return false;
        network_.Step();
        step();
      }
      if (completion[0].outcome != CollectiveOutcome::kDone) return false;
      if (!at(node).execution->Quiet()) return false;
    }
    return true;
  }
  bool Run() {
    return Run([] {});
  }

  const std::vector<Bytes>& Results(int node) {
    return job_.in_place ? at(node).sources : at(node).results;
  }
  // All ranks of all nodes have the same results as those of `other`.
  bool EqualsAllOf(World& other) {
    for (int node = 0; node < network_.node_count(); ++node) {
      const std::size_t ranks = at(node).sources.size() / job_.metas.size();
      for (std::size_t i = 0; i < Results(node).size(); ++i) {
        const std::size_t first_of_tensor =
            i / ranks * (other.at(0).sources.size() / job_.metas.size());
        if (Results(node)[i] != other.Results(0)[first_of_tensor]) return false;
      }
    }
    return true;
  }

  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
  FakeNetwork& network() { return network_; }

 private:
  const Job job_;
  FakeNetwork network_;
  BufferPool pool_;
  std::vector<Node> nodes_;
};

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr std::size_t kLarge = (std::size_t{1} << 20) + 4096;

TEST_CASE("Execution: summed ahead or not, all types and operations give the same bits") {
  using Speed = SteppedReducers::Speed;
  int wakes = 0;
  for (int type = 0; type < kDataTypeCount; ++type) {
    for (const ReduceOp op : kOps) {
      INFO(Name(static_cast<DataType>(type)) << " " << Name(op));
      const auto seed = static_cast<unsigned>(type * 10 + static_cast<int>(op));
      Job job;
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
        CHECK(reducers.offered == 2);
        CHECK((reducers.summed > 0) == (speed != Speed::kNever));
        CHECK(world.EqualsAllOf(alone));
        wakes += reducers.wakes;
      }
    }
  }
  // The engine came to cells that were being summed, and was told.
  CHECK(wakes > 100);
}

TEST_CASE("Execution: buckets of several tensors over several nodes, summed by threads") {
  ReducerPool pool(2);
  for (unsigned seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Job job;
    job.ranks.clear();
    for (std::size_t nodes = 2 + seed % 3; nodes > 0; --nodes) {
      job.ranks.push_back(1 + static_cast<int>(random() % 4));
    }
    for (std::size_t bytes = 0; bytes < kLarge;) {
      const std::size_t next = 4 + random() % (kLarge / 2);
      job.metas.push_back(Meta(DataType::kFloat32, ReduceOp::kAverage, next));
      if (random() % 2 == 0) job.metas.back().prescale = 0.37;
      bytes += next;
    }
    job.in_place = seed % 2 == 0;
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
    execution.WithdrawSums();
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
