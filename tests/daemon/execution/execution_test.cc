// Executions of several nodes over a network that delays and reorders.
#include "daemon/execution/execution.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "daemon/execution/buffer_pool.h"
#include "tests/backends/collectives/fake_network.h"
#include "tests/daemon/execution/ranks_by_node.h"

namespace ringd {
namespace {

using Values = std::vector<float>;

struct Job {
  std::vector<int> ranks;  // by node
  std::vector<TensorMeta> metas;
  bool in_place = true;

  int rank_count() const {
    int count = 0;
    for (const int ranks_here : ranks) count += ranks_here;
    return count;
  }
};

float InputOf(int rank, std::size_t tensor, std::size_t i) {
  return static_cast<float>((rank * 31 + static_cast<int>(tensor) * 7 + static_cast<int>(i)) % 23);
}

// A node's ranks, their memory, and the execution over it.
struct Node {
  Node(const Job& job, int first_rank, int rank_count, int root_member, OperationId id,
       BufferPool& pool) {
    std::vector<const TensorMeta*> metas;
    for (const TensorMeta& meta : job.metas) metas.push_back(&meta);
    layout = std::make_shared<const BucketLayout>(metas, ConsecutiveRanks(job.ranks));
    std::vector<TensorBuffers> buffers;
    for (std::size_t t = 0; t < job.metas.size(); ++t) {
      for (int m = 0; m < rank_count; ++m) {
        auto values = std::make_unique<Values>(ElementCount(job.metas[t]));
        for (std::size_t i = 0; i < values->size(); ++i) {
          (*values)[i] = InputOf(first_rank + m, t, i);
        }
        sources.push_back(std::move(values));
        auto result = std::make_unique<Values>(sources.back()->size(), -1.0F);
        auto& destination = job.in_place ? sources.back() : result;
        buffers.push_back({reinterpret_cast<const std::byte*>(sources.back()->data()),
                           reinterpret_cast<std::byte*>(destination->data())});
        results.push_back(std::move(result));
      }
    }
    execution = std::make_unique<Execution>(
        id, nullptr, layout, BucketMemory(*layout, rank_count, std::move(buffers), root_member),
        std::vector<StagedBuffer>(), Clock::now());
    PooledBuffer buffer = pool.Acquire(layout->bytes());
    if (buffer.data() != nullptr) std::memset(buffer.data(), 0xEE, layout->bytes());
    execution->UseBuffer(std::move(buffer));
  }

  std::shared_ptr<const BucketLayout> layout;
  std::vector<std::unique_ptr<Values>> sources;  // tensor * ranks + rank
  std::vector<std::unique_ptr<Values>> results;  // unless in place
  std::unique_ptr<Execution> execution;
};

// All nodes of a job, each with an execution posted to a communicator.
class World {
 public:
  World(const Job& job, unsigned seed) : job_(job), network_(NodeCount(), Options(), seed) {
    int rank = 0;
    for (int node = 0; node < NodeCount(); ++node) {
      const int ranks_here = job.ranks[static_cast<std::size_t>(node)];
      nodes_.emplace_back(job, rank, ranks_here, node == kRootNode ? 0 : -1, kId, pool_);
      if (node == kRootNode) root_rank_ = rank;
      rank += ranks_here;
    }
  }

  bool Post(int node) {
    Execution& execution = *nodes_[static_cast<std::size_t>(node)].execution;
    return network_.at(node).TryPost(execution.Request(NodeIndex(kRootNode)));
  }

  bool Finish() {
    for (int node = 0; node < NodeCount(); ++node) {
      Completion completion[1];
      for (int step = 0; network_.at(node).Poll(completion) == 0; ++step) {
        if (step == 200'000) return false;
        network_.Step();
      }
      if (completion[0].outcome != CollectiveOutcome::kDone) return false;
    }
    return true;
  }

  // Every rank has what it should have, and all have the same bits.
  void CheckResults() const {
    for (std::size_t t = 0; t < job_.metas.size(); ++t) {
      const Values& first = ResultOf(nodes_.front(), t, 0);
      for (std::size_t i = 0; i < first.size(); ++i) REQUIRE(first[i] == Approx(Expected(t, i)));
      for (const Node& node : nodes_) {
        for (std::size_t m = 0; m < RanksOf(node); ++m) REQUIRE((ResultOf(node, t, m) == first));
      }
    }
  }

  bool InputsAreIntact() const {
    int rank = 0;
    for (const Node& node : nodes_) {
      for (std::size_t m = 0; m < RanksOf(node); ++m, ++rank) {
        for (std::size_t t = 0; t < job_.metas.size(); ++t) {
          const Values& values = *node.sources[t * RanksOf(node) + m];
          for (std::size_t i = 0; i < values.size(); ++i) {
            if (values[i] != InputOf(rank, t, i)) return false;
          }
        }
      }
    }
    return true;
  }

  int NodeCount() const { return static_cast<int>(job_.ranks.size()); }
  FakeNetwork& network() { return network_; }

  static constexpr OperationId kId{3, 0};

 private:
  static constexpr int kRootNode = 1;

  static AlgorithmOptions Options() {
    AlgorithmOptions options;
    options.chunk_bytes = 128;
    options.flat_all_reduce_bytes = 200;
    options.small_all_reduce_bytes = 128;
    options.small_broadcast_bytes = 128;
    return options;
  }
  std::size_t RanksOf(const Node& node) const { return node.sources.size() / job_.metas.size(); }
  const Values& ResultOf(const Node& node, std::size_t tensor, std::size_t member) const {
    const auto& memory = job_.in_place ? node.sources : node.results;
    return *memory[tensor * RanksOf(node) + member];
  }
  float Expected(std::size_t tensor, std::size_t i) const {
    const TensorMeta& meta = job_.metas[tensor];
    if (meta.kind == CollectiveKind::kBroadcast) return InputOf(root_rank_, tensor, i);
    double sum = 0;
    for (int rank = 0; rank < job_.rank_count(); ++rank) {
      sum += InputOf(rank, tensor, i) * meta.prescale;
    }
    if (meta.op == ReduceOp::kAverage) sum /= job_.rank_count();
    return static_cast<float>(sum * meta.postscale);
  }

  const Job job_;
  int root_rank_ = 0;
  FakeNetwork network_;
  BufferPool pool_;
  std::vector<Node> nodes_;
};

TensorMeta Meta(std::int64_t elements, ReduceOp op) {
  TensorMeta meta;
  meta.op = op;
  meta.shape = {elements};
  return meta;
}

// Tensors within a chunk, over several, and of a chunk's part; sums for each algorithm.
std::vector<TensorMeta> AnyTensors(std::mt19937& random) {
  const ReduceOp op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAverage;
  std::vector<TensorMeta> metas;
  const std::size_t count = 1 + random() % 4;
  for (std::size_t i = 0; i < count; ++i) {
    metas.push_back(Meta(random() % 3 == 0 ? 1 + random() % 600 : 1 + random() % 12, op));
    if (random() % 3 == 0) metas.back().prescale = 0.5;
    if (random() % 3 == 0) metas.back().postscale = 3.0;
  }
  return metas;
}

Job AnyJob(std::mt19937& random) {
  Job job;
  job.metas = AnyTensors(random);
  job.in_place = random() % 4 != 0;
  const std::size_t node_count = 2 + random() % 5;
  // One rank on each node, or any number.
  const bool single = random() % 2 == 0;
  for (std::size_t node = 0; node < node_count; ++node) {
    job.ranks.push_back(single ? 1 : 1 + static_cast<int>(random() % 3));
  }
  return job;
}

TEST_CASE("Execution: all ranks of all nodes get the same result, in place or not") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const Job job = AnyJob(random);
    INFO("seed " << seed);
    World world(job, seed);
    for (int node = 0; node < world.NodeCount(); ++node) {
      REQUIRE(world.Post(node));
      for (unsigned steps = random() % 30; steps > 0; --steps) world.network().Step();
    }
    REQUIRE(world.Finish());
    world.CheckResults();
  }
}

TEST_CASE("Execution: a broadcast gives all ranks the root's values") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    Job job = AnyJob(random);
    for (TensorMeta& meta : job.metas) meta.kind = CollectiveKind::kBroadcast;
    INFO("seed " << seed);
    World world(job, seed);
    for (int node = 0; node < world.NodeCount(); ++node) REQUIRE(world.Post(node));
    REQUIRE(world.Finish());
    world.CheckResults();
  }
}

TEST_CASE("Execution: one that a node never starts can be cancelled, and its inputs are intact") {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const Job job = AnyJob(random);
    INFO("seed " << seed);
    World world(job, seed);
    const int absent = static_cast<int>(random()) & 1;
    for (int node = 0; node < world.NodeCount(); ++node) {
      if (node != absent) REQUIRE(world.Post(node));
    }
    for (unsigned steps = random() % 3000; steps > 0; --steps) world.network().Step();
    for (int node = 0; node < world.NodeCount(); ++node)
      world.network().at(node).Cancel(World::kId);
    for (int step = 0; step < 1000; ++step) world.network().Step();
    for (int node = 0; node < world.NodeCount(); ++node) {
      Completion completion[2];
      REQUIRE(world.network().at(node).Poll(completion) == (node == absent ? 0 : 1));
    }
    REQUIRE(world.InputsAreIntact());
  }
}

}  // namespace
}  // namespace ringd
