// Executions of kinds with parts, several ranks on a node, over a network that delays and reorders.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "daemon/execution/buffer_pool.h"
#include "daemon/execution/execution.h"
#include "tests/daemon/execution/helped_nodes.h"

namespace ringd {
namespace {

using Values = std::vector<std::int32_t>;

struct PartedJob {
  RanksByNode ranks;
  std::vector<TensorMeta> metas;
  bool in_place = false;

  std::size_t rank_count() const {
    return std::accumulate(ranks.begin(), ranks.end(), std::size_t{0},
                           [](std::size_t sum, const auto& node) { return sum + node.size(); });
  }
};

std::int32_t InputOf(Rank rank, std::size_t tensor, std::size_t i) {
  return rank.value() * 1000 + static_cast<std::int32_t>(tensor * 100 + i % 89);
}

// The first element of a rank's part, and the one behind it.
std::pair<std::size_t, std::size_t> PartOf(const TensorMeta& meta, Rank rank) {
  const auto first = meta.parts.begin();
  const std::int64_t begin = std::accumulate(first, first + rank.value(), std::int64_t{0});
  return {static_cast<std::size_t>(begin), static_cast<std::size_t>(begin + first[rank.value()])};
}

// One rank's tensor: source and destination of their own sizes, or one in the other.
struct RankTensor {
  RankTensor(const PartedJob& job, std::size_t t, Rank self) : rank(self), meta(job.metas[t]) {
    const auto [begin, end] = PartOf(meta, self);
    const OperationTraits& traits = TraitsOf(meta.kind);
    const bool part_in = traits.input == Extent::kOwnPart;
    const bool part_out = traits.output == Extent::kOwnPart;
    const std::size_t all = ElementCount(meta);
    whole.assign(all, -1);
    part.assign(end - begin, -2);
    Values& input = part_in && !job.in_place ? part : whole;
    for (std::size_t i = part_in ? begin : 0; i < (part_in ? end : all); ++i) {
      input[part_in && !job.in_place ? i - begin : i] = InputOf(self, t, i);
    }
    std::int32_t* const part_at = job.in_place ? whole.data() + begin : part.data();
    buffers.source = reinterpret_cast<std::byte*>(part_in ? part_at : whole.data());
    buffers.destination = reinterpret_cast<std::byte*>(part_out ? part_at : whole.data());
  }
  RankTensor(RankTensor&&) = default;

  const std::int32_t* result() const {
    return reinterpret_cast<const std::int32_t*>(buffers.destination);
  }

  Rank rank;
  const TensorMeta& meta;
  Values whole;
  Values part;
  TensorBuffers buffers;
};

struct PartedNode {
  PartedNode(const PartedJob& job, std::size_t self, BufferPool& pool, Reducers* reducers) {
    std::vector<const TensorMeta*> metas;
    for (const TensorMeta& meta : job.metas) metas.push_back(&meta);
    layout = std::make_shared<const BucketLayout>(metas, job.ranks);
    std::vector<TensorBuffers> buffers;
    for (std::size_t t = 0; t < job.metas.size(); ++t) {
      for (const Rank rank : job.ranks[self]) {
        tensors.emplace_back(job, t, rank);
        buffers.push_back(tensors.back().buffers);
      }
    }
    execution = std::make_unique<Execution>(
        OperationId{3, 0}, nullptr, layout,
        BucketMemory(*layout, static_cast<int>(job.ranks[self].size()), std::move(buffers), -1),
        std::vector<StagedBuffer>(), Clock::now());
    PooledBuffer buffer = pool.Acquire(layout->bytes());
    if (buffer.data() != nullptr) std::memset(buffer.data(), 0xEE, layout->bytes());
    execution->UseBuffer(std::move(buffer));
    if (reducers == nullptr) return;
    execution->PrepareWork(*reducers, {.node_count = static_cast<std::uint32_t>(job.ranks.size()),
                                       .self = static_cast<std::uint32_t>(self),
                                       .chunk_bytes = kChunkBytes});
  }

  std::shared_ptr<const BucketLayout> layout;
  std::vector<RankTensor> tensors;  // tensor * ranks + rank
  std::unique_ptr<Execution> execution;
};

std::int32_t ExpectedOf(const PartedJob& job, std::size_t t, std::size_t i) {
  std::int32_t sum = 0;
  for (std::size_t r = 0; r < job.rank_count(); ++r) {
    const Rank rank(static_cast<std::int32_t>(r));
    const auto [begin, end] = PartOf(job.metas[t], rank);
    const bool gives = TraitsOf(job.metas[t].kind).combines || (begin <= i && i < end);
    if (gives) sum += InputOf(rank, t, i);
  }
  return sum;
}

// Empty if every rank has what it should have, in time.
std::string Run(const PartedJob& job, unsigned seed, SteppedReducers* reducers) {
  const int node_count = static_cast<int>(job.ranks.size());
  FakeNetwork network(node_count, Options(), seed);
  BufferPool pool;
  std::vector<PartedNode> nodes;
  for (int node = 0; node < node_count; ++node) {
    nodes.emplace_back(job, static_cast<std::size_t>(node), pool, reducers);
    Execution& execution = *nodes.back().execution;
    if (!network.at(node).TryPost(execution.Request(NodeIndex(0)))) return "not posted";
    execution.OfferWork();
  }
  const auto deadline = steady_clock::now() + kPatience;
  for (int node = 0; node < node_count; ++node) {
    Completion completion[1];
    while (network.at(node).Poll(completion) == 0) {
      if (steady_clock::now() > deadline) return "not completed";
      network.Step();
      if (reducers != nullptr) reducers->Step();
    }
    if (completion[0].outcome != CollectiveOutcome::kDone) return "not done";
    if (!nodes[static_cast<std::size_t>(node)].execution->InPlace()) return "not in place";
  }
  while (reducers != nullptr && reducers->claimed() > 0) reducers->FinishOne();
  for (const PartedNode& node : nodes) {
    const std::size_t members = node.tensors.size() / job.metas.size();
    for (std::size_t n = 0; n < node.tensors.size(); ++n) {
      const RankTensor& tensor = node.tensors[n];
      const bool own = TraitsOf(tensor.meta.kind).output == Extent::kOwnPart;
      const auto [begin, end] = own ? PartOf(tensor.meta, tensor.rank)
                                    : std::pair<std::size_t, std::size_t>{0, tensor.whole.size()};
      for (std::size_t i = begin; i < end; ++i) {
        if (tensor.result()[i - begin] == ExpectedOf(job, n / members, i)) continue;
        return "rank " + std::to_string(tensor.rank.value()) + ", element " + std::to_string(i);
      }
    }
  }
  return "";
}

TensorMeta PartedMeta(CollectiveKind kind, std::vector<std::int64_t> parts) {
  TensorMeta meta;
  meta.kind = kind;
  meta.dtype = DataType::kInt32;
  meta.shape = {std::accumulate(parts.begin(), parts.end(), std::int64_t{0})};
  meta.parts = std::move(parts);
  return meta;
}

// Ranks anywhere, one to three on each of up to five nodes, and a few fused tensors of any parts.
PartedJob AnyJob(std::mt19937& random, CollectiveKind kind) {
  PartedJob job;
  job.ranks.resize(1 + random() % 5);
  std::vector<int> order;
  for (auto& node : job.ranks) {
    node.resize(1 + random() % 3);
    for (std::size_t m = 0; m < node.size(); ++m) order.push_back(static_cast<int>(order.size()));
  }
  std::shuffle(order.begin(), order.end(), random);
  std::size_t next = 0;
  for (auto& node : job.ranks) {
    for (Rank& rank : node) rank = Rank(order[next++]);
  }
  for (std::size_t tensors = 1 + random() % 3; tensors > 0; --tensors) {
    std::vector<std::int64_t> parts;
    for (std::size_t r = 0; r < job.rank_count(); ++r) {
      parts.push_back(random() % 3 == 0 ? 0 : random() % (random() % 3 == 0 ? 9000 : 40));
    }
    job.metas.push_back(PartedMeta(kind, std::move(parts)));
  }
  job.in_place = random() % 2 == 0;
  return job;
}

TEST_CASE("Execution: every rank gets the parts that are its, wherever the ranks are") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto kind = seed % 2 == 0 ? CollectiveKind::kReduceScatter : CollectiveKind::kAllGather;
    const PartedJob job = AnyJob(random, kind);
    INFO(Name(kind) << ", seed " << seed);
    REQUIRE(Run(job, seed, nullptr) == "");
  }
}

TEST_CASE("Execution: reducers sum ahead of a reduce-scatter") {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    PartedJob job;
    job.ranks = {{Rank(0), Rank(3)}, {Rank(1), Rank(4)}, {Rank(2), Rank(5)}};
    job.metas.push_back(
        PartedMeta(CollectiveKind::kReduceScatter, {100'000, 1, 70'000, 0, 120'000, 13}));
    job.in_place = seed % 2 == 0;
    SteppedReducers reducers(SteppedReducers::Speed::kRandom, seed);
    INFO("seed " << seed);
    REQUIRE(Run(job, seed, &reducers) == "");
    CHECK(reducers.offered == 3);
    CHECK(reducers.finished > 0);
  }
}

TEST_CASE("BucketLayout: a node's block has its ranks' parts of every tensor") {
  const std::vector<TensorMeta> metas = {
      PartedMeta(CollectiveKind::kAllGather, {3, 0, 20, 5}),
      PartedMeta(CollectiveKind::kAllGather, {1, 0, 0, 17}),
  };
  const std::vector<const TensorMeta*> pointers = {&metas[0], &metas[1]};
  const BucketLayout layout(pointers, {{Rank(2), Rank(0)}, {Rank(1)}, {Rank(3)}});
  REQUIRE(layout.blocks().size() == 3);
  CHECK(layout.blocks()[0] == ByteRange{0, 196});
  CHECK(layout.blocks()[1].empty());
  CHECK(layout.blocks()[2] == ByteRange{256, 256 + 64 + 17 * 4});
  CHECK(layout.payload_bytes() == 46 * 4);
  const auto sections = layout.sections();
  REQUIRE(sections.size() == 8);
  // Rank 2's part of the first tensor comes behind three elements there, and first on its node.
  CHECK(sections[0].begin == 0);
  CHECK(sections[0].bytes == 80);
  CHECK(sections[0].offset == 12);
  CHECK(sections[0].owner == 0);
  CHECK(sections[1].begin == 128);
  CHECK(sections[1].offset == 0);
  CHECK(sections[1].owner == 1);
  CHECK(sections[3].tensor == 1);
  CHECK(sections[3].begin == 192);
}

}  // namespace
}  // namespace ringd
