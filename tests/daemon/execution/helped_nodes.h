// Nodes of a job whose executions reducers help, over a network that takes a step when it is told
// to.
#ifndef RINGD_TESTS_DAEMON_EXECUTION_HELPED_NODES_H_
#define RINGD_TESTS_DAEMON_EXECUTION_HELPED_NODES_H_

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "daemon/execution/buffer_pool.h"
#include "daemon/execution/execution.h"
#include "daemon/execution/reducers.h"
#include "tests/backends/collectives/fake_network.h"
#include "tests/daemon/execution/ranks_by_node.h"

namespace ringd {

using Bytes = std::vector<std::byte>;
using std::chrono::steady_clock;

inline constexpr auto kPatience = std::chrono::seconds(60);
inline constexpr std::uint32_t kChunkBytes = 16 * 1024;

struct Job {
  std::vector<int> ranks = {3, 2};  // by node
  std::vector<TensorMeta> metas;
  bool in_place = true;
  bool staged = false;  // every tensor in pieces: see StagedRanks

  int rank_count() const {
    int count = 0;
    for (const int ranks_here : ranks) count += ranks_here;
    return count;
  }
};

inline TensorMeta Meta(DataType type, ReduceOp op, std::size_t bytes) {
  TensorMeta meta;
  meta.dtype = type;
  meta.op = op;
  meta.shape = {static_cast<std::int64_t>(bytes / SizeOf(type))};
  return meta;
}

// Averages of several tensors, of `least_bytes` together, over two to four nodes with
// `fewest_ranks` to three more.
inline Job AnyAverages(unsigned seed, int fewest_ranks, std::size_t least_bytes) {
  std::mt19937 random(seed);
  Job job;
  job.ranks.clear();
  for (std::size_t nodes = 2 + seed % 3; nodes > 0; --nodes) {
    job.ranks.push_back(fewest_ranks + static_cast<int>(random() % 4));
  }
  for (std::size_t bytes = 0; bytes < least_bytes;) {
    const std::size_t next = 4 + random() % (least_bytes / 2);
    job.metas.push_back(Meta(DataType::kFloat32, ReduceOp::kAverage, next));
    if (random() % 2 == 0) job.metas.back().prescale = 0.37;
    bytes += next;
  }
  job.in_place = seed % 2 == 0;
  return job;
}

// Any numbers; of floats neither NaN nor infinite, nor so large that a product is: of them the top
// bit of the exponent is 0.
inline Bytes AnyValues(const TensorMeta& meta, std::mt19937& random) {
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
    if (speed_ == Speed::kAtOnce) FinishAll();
  }
  void Tell() noexcept override {
    ++told;
    if (speed_ == Speed::kAtOnce) FinishAll();
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
    ++finished;
  }
  std::size_t claimed() const { return claimed_.size(); }

  int offered = 0;
  int finished = 0;
  int told = 0;
  int wakes = 0;

 private:
  struct Claimed {
    std::shared_ptr<ReducerWork> work;
    std::size_t part;
  };
  void FinishAll() {
    for (const auto& work : works_) {
      while (const auto part = work->Claim()) {
        work->Finish(*part);
        ++finished;
      }
    }
  }

  const Speed speed_;
  std::mt19937 random_;
  std::vector<std::shared_ptr<ReducerWork>> works_;
  std::vector<Claimed> claimed_;
};

// What the ranks of a node do with tensors that are staged in pieces; buffers are counted as in
// Node.
struct StagedRanks {
  explicit StagedRanks(std::size_t buffer_count) : fetched(buffer_count) {
    for (std::size_t i = 0; i < buffer_count; ++i) {
      progress.push_back(std::make_unique<StagingProgress>());
    }
  }

  // Copies a piece of a source that is not there yet; false if there is none.
  bool StageOne(const std::vector<Bytes>& inputs, std::vector<Bytes>& sources,
                std::mt19937& random) {
    const std::size_t first = random() % inputs.size();
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      const std::size_t i = (first + n) % inputs.size();
      const std::uint64_t missing = AllStagingPieces(inputs[i].size()) & ~progress[i]->source;
      if (missing == 0) continue;
      int piece = static_cast<int>(random() % kMaxStagingPieces);
      while ((missing >> piece & 1) == 0) piece = (piece + 1) % static_cast<int>(kMaxStagingPieces);
      Copy(inputs[i], sources[i], piece);
      progress[i]->source |= std::uint64_t{1} << piece;
      return true;
    }
    return false;
  }
  // Copies out what is final. Returns how many pieces.
  int Fetch(const std::vector<Bytes>& results) {
    int pieces = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      fetched[i].bytes.resize(results[i].size());
      std::uint64_t fresh = progress[i]->result & ~fetched[i].pieces;
      fetched[i].pieces |= fresh;
      for (; fresh != 0; fresh &= fresh - 1, ++pieces) {
        Copy(results[i], fetched[i].bytes, std::countr_zero(fresh));
      }
    }
    return pieces;
  }
  // Every piece was told, when it was as it is now.
  bool FetchedAll(const std::vector<Bytes>& results) {
    Fetch(results);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (fetched[i].pieces != AllStagingPieces(results[i].size())) return false;
      if (fetched[i].bytes != results[i]) return false;
    }
    return true;
  }

  static void Copy(const Bytes& from, Bytes& to, int piece) {
    const std::size_t length = StagingPieceBytes(from.size());
    const std::size_t begin = static_cast<std::size_t>(piece) * length;
    std::memcpy(&to[begin], &from[begin], std::min(length, from.size() - begin));
  }

  struct Fetched {
    std::uint64_t pieces = 0;
    Bytes bytes;
  };
  std::vector<std::unique_ptr<StagingProgress>> progress;
  std::vector<Fetched> fetched;
  Doorbell bell{};
};

// A node's ranks, their memory, and the execution over it.
struct Node {
  Node(const Job& job, int self, BufferPool& pool, Reducers* reducers, std::mt19937& random) {
    std::vector<const TensorMeta*> metas;
    for (const TensorMeta& meta : job.metas) metas.push_back(&meta);
    layout = std::make_shared<const BucketLayout>(metas, ConsecutiveRanks(job.ranks));
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
    std::vector<StagedBuffer> in_pieces;
    if (job.staged) {
      staged = std::make_unique<StagedRanks>(sources.size());
      const auto members = static_cast<std::size_t>(rank_count);
      for (std::size_t i = 0; i < sources.size(); ++i) {
        std::fill(sources[i].begin(), sources[i].end(), std::byte{0x3B});
        in_pieces.push_back({.tensor = i / members,
                             .member = i % members,
                             .progress = staged->progress[i].get(),
                             .waiters = &staged->bell,
                             .source = true,
                             .result = true});
      }
    }
    execution = std::make_unique<Execution>(
        OperationId{3, 0}, nullptr, layout,
        BucketMemory(*layout, rank_count, std::move(buffers), -1), in_pieces, Clock::now());
    execution->UseBuffer(pool.Acquire(layout->bytes()));
    if (reducers != nullptr) {
      execution->PrepareWork(*reducers, {.node_count = static_cast<std::uint32_t>(job.ranks.size()),
                                         .self = static_cast<std::uint32_t>(self),
                                         .chunk_bytes = kChunkBytes});
    }
  }

  std::shared_ptr<const BucketLayout> layout;
  std::vector<Bytes> sources;  // tensor * ranks + rank
  std::vector<Bytes> results;  // unless in place
  std::vector<Bytes> inputs;   // what the sources were
  std::unique_ptr<StagedRanks> staged;
  std::unique_ptr<Execution> execution;
};

inline AlgorithmOptions Options() {
  AlgorithmOptions options;
  options.chunk_bytes = kChunkBytes;
  return options;
}

// All nodes of a job; the same seed gives the same values.
class World {
 public:
  World(const Job& job, unsigned seed, Reducers* reducers)
      : job_(job), network_(static_cast<int>(job.ranks.size()), Options(), seed), random_(seed) {
    std::mt19937 random(seed);
    nodes_.reserve(job.ranks.size());
    for (int node = 0; node < network_.node_count(); ++node) {
      nodes_.emplace_back(job, node, pool_, reducers, random);
    }
  }

  bool Post(int node) {
    Execution& execution = *at(node).execution;
    if (!network_.at(node).TryPost(execution.Request(NodeIndex(0)))) return false;
    execution.OfferWork();
    return true;
  }

  // Posts all and finishes them; between the network's steps, and the engine's copies, `step()` is
  // called.
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
      Execution& execution = *at(node).execution;
      while (!execution.InPlace()) {
        if (steady_clock::now() > deadline) return false;
        if (random_() % 2 == 0 && execution.CopyPiece()) ++copied_by_engine;
        step();
      }
      if (!execution.Quiet()) return false;
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

  // A piece of a source that some rank of some node has not staged yet; false if all have.
  bool StageOne() {
    const int first = static_cast<int>(random_() % nodes_.size());
    for (int n = 0; n < network_.node_count(); ++n) {
      Node& node = at((first + n) % network_.node_count());
      if (node.staged->StageOne(node.inputs, node.sources, random_)) return true;
    }
    return false;
  }
  int Fetch() {
    int pieces = 0;
    for (int node = 0; node < network_.node_count(); ++node) {
      pieces += at(node).staged->Fetch(Results(node));
    }
    return pieces;
  }
  bool FetchedAll() {
    for (int node = 0; node < network_.node_count(); ++node) {
      if (!at(node).staged->FetchedAll(Results(node))) return false;
    }
    return true;
  }

  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }
  FakeNetwork& network() { return network_; }

  int copied_by_engine = 0;

 private:
  const Job job_;
  FakeNetwork network_;
  std::mt19937 random_;  // of the engine's leisure
  BufferPool pool_;
  std::vector<Node> nodes_;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_EXECUTION_HELPED_NODES_H_
