#include "daemon/execution/local_sums.h"

#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <vector>

#include "daemon/execution/reducer_pool.h"
#include "tests/daemon/execution/ranks_by_node.h"

namespace ringd {
namespace {

using Answer = LocalSums::Answer;

constexpr std::uint32_t kChunkBytes = 256;
constexpr std::uint32_t kChunksPerBlock = 3;

RingLayout AllReduceRing(std::size_t bytes, std::uint32_t nodes, std::uint32_t self) {
  return {TraitsOf(CollectiveKind::kAllReduce), BlockMap::Even(bytes, nodes, kChunkBytes), self};
}

class CountedReducers final : public Reducers {
 public:
  void Offer(std::shared_ptr<ReducerWork>) override {}
  void Tell() noexcept override {}
  void Withdraw(const ReducerWork&) override {}
  void WakeEngine() noexcept override { ++wakes; }
  int wakes = 0;
};

// A tensor of two local ranks on one of four nodes, in blocks of three chunks.
struct Bucket {
  static constexpr std::uint32_t kNodes = 4;
  static constexpr std::size_t kBytes = kNodes * kChunksPerBlock * kChunkBytes;

  Bucket() {
    TensorMeta meta;
    meta.shape = {kBytes / 4};
    const std::vector<const TensorMeta*> metas = {&meta};
    layout = std::make_unique<BucketLayout>(metas, ConsecutiveRanks({4, 4}));
    std::vector<TensorBuffers> buffers;
    for (auto& values : tensors) {
      values.assign(kBytes / 4, static_cast<float>(1 + (&values - tensors)));
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      buffers.push_back({bytes, bytes});
    }
    memory = std::make_unique<BucketMemory>(*layout, 2, buffers, -1);
  }

  std::unique_ptr<LocalSums> Sums(bool first_block_only = false) {
    return std::make_unique<LocalSums>(
        *memory, nullptr, reinterpret_cast<std::byte*>(buffer.data()),
        AllReduceRing(kBytes, kNodes, 1), first_block_only, reducers);
  }
  bool IsSummed(std::size_t cell) const {
    for (std::size_t i = 0; i < kChunkBytes / 4; ++i) {
      if (buffer[cell * kChunkBytes / 4 + i] != 3.0F) return false;
    }
    return true;
  }

  std::vector<float> tensors[2];
  std::vector<float> buffer = std::vector<float>(kBytes / 4, -1.0F);
  std::unique_ptr<BucketLayout> layout;
  std::unique_ptr<BucketMemory> memory;
  CountedReducers reducers;
};

Answer TakeCell(LocalSums& sums, std::size_t cell) {
  return sums.Take(cell * kChunkBytes, (cell + 1) * kChunkBytes);
}

std::vector<std::size_t> ClaimAll(LocalSums& sums) {
  std::vector<std::size_t> cells;
  while (const auto cell = sums.Claim()) cells.push_back(*cell);
  return cells;
}

TEST_CASE("LocalSums: reducers come in the order in which the ring asks") {
  Bucket bucket;
  // The own block 1 beside block 0, which comes from the neighbour first; then blocks 3 and 2.
  CHECK(ClaimAll(*bucket.Sums()) == std::vector<std::size_t>{3, 0, 4, 1, 5, 2, 9, 10, 11, 6, 7, 8});
  CHECK(ClaimAll(*bucket.Sums(/*first_block_only=*/true)) == std::vector<std::size_t>{3, 4, 5});
}

TEST_CASE("LocalSums: a cell that was summed in time is in the buffer") {
  Bucket bucket;
  const auto sums = bucket.Sums();
  const auto cell = sums->Claim();
  REQUIRE(cell.has_value());
  sums->Finish(*cell);
  CHECK(bucket.IsSummed(*cell));
  CHECK(TakeCell(*sums, *cell) == Answer::kSummed);
  CHECK(bucket.reducers.wakes == 0);
}

TEST_CASE("LocalSums: what the engine has taken, and the next, nobody claims") {
  Bucket bucket;
  const auto sums = bucket.Sums();
  CHECK(TakeCell(*sums, 3) == Answer::kTaken);
  CHECK(ClaimAll(*sums) == std::vector<std::size_t>{0, 1, 5, 2, 9, 10, 11, 6, 7, 8});
  CHECK(TakeCell(*sums, 4) == Answer::kTaken);
  CHECK_FALSE(bucket.IsSummed(3));
}

TEST_CASE("LocalSums: of a cell that is being summed the engine hears when it is done") {
  Bucket bucket;
  const auto sums = bucket.Sums();
  const auto cell = sums->Claim();
  REQUIRE(cell == 3);
  CHECK(TakeCell(*sums, 3) == Answer::kNotReady);
  CHECK(TakeCell(*sums, 3) == Answer::kNotReady);
  sums->Finish(3);
  CHECK(bucket.reducers.wakes == 1);
  CHECK(TakeCell(*sums, 3) == Answer::kSummed);
}

TEST_CASE("LocalSums: a range that is no cell is the engine's once nobody is at it") {
  Bucket bucket;
  const auto sums = bucket.Sums();
  REQUIRE(sums->Claim() == 3);
  REQUIRE(sums->Claim() == 0);
  sums->Finish(0);
  CHECK(sums->Take(0, kChunkBytes / 2) == Answer::kTaken);
  CHECK(sums->Take(0, Bucket::kBytes) == Answer::kNotReady);
  sums->Finish(3);
  CHECK(bucket.reducers.wakes == 1);
  CHECK(sums->Take(0, Bucket::kBytes) == Answer::kTaken);
  CHECK(ClaimAll(*sums).empty());
}

TEST_CASE(
    "LocalSums: once closed nothing is claimed, and it is quiet when who is at it has ended") {
  Bucket bucket;
  const auto sums = bucket.Sums();
  REQUIRE(sums->Claim() == 3);
  REQUIRE(sums->Claim() == 0);
  sums->Finish(0);
  sums->Close();
  CHECK(ClaimAll(*sums).empty());
  CHECK_FALSE(sums->Quiet());
  sums->Finish(3);
  CHECK(bucket.reducers.wakes == 1);
  CHECK(sums->Quiet());
}

TEST_CASE("LocalSums: any size and any number of nodes: each cell is claimed once and is a chunk") {
  for (std::uint32_t nodes = 2; nodes <= 9; ++nodes) {
    for (const std::size_t bytes : {64U, 640U, 4096U, 4097U * 4, 70000U}) {
      TensorMeta meta;
      meta.shape = {static_cast<std::int64_t>(bytes / 4)};
      const std::vector<const TensorMeta*> metas = {&meta};
      const BucketLayout layout(metas, ConsecutiveRanks({1, 1}));
      std::vector<float> values(bytes / 4, 1.0F);
      auto* tensor = reinterpret_cast<std::byte*>(values.data());
      const BucketMemory memory(layout, 2, {{tensor, tensor}, {tensor, tensor}}, -1);
      std::vector<float> buffer(bytes / 4, -1.0F);
      CountedReducers reducers;
      const RingLayout ring = AllReduceRing(bytes, nodes, nodes - 1);
      LocalSums sums(memory, nullptr, reinterpret_cast<std::byte*>(buffer.data()), ring, false,
                     reducers);
      const std::vector<std::size_t> cells = ClaimAll(sums);
      CHECK(std::set<std::size_t>(cells.begin(), cells.end()).size() == cells.size());
      for (const std::size_t cell : cells) sums.Finish(cell);
      CHECK(buffer == std::vector<float>(bytes / 4, 2.0F));
      for (std::uint32_t block = 0; block < nodes; ++block) {
        for (std::uint32_t chunk = 0; chunk < ring.map().ChunkCount(block); ++chunk) {
          const ByteRange range = ring.map().Chunk(block, chunk);
          REQUIRE(sums.Take(range.begin, range.end) == Answer::kSummed);
        }
      }
    }
  }
}

// The engine takes cell by cell and overwrites the sources as results in place would, while two
// threads sum: each of the buffer's bytes is right, and ThreadSanitizer finds nothing.
TEST_CASE("LocalSums: engine and reducers share the cells without touching each other's") {
  for (int round = 0; round < 50; ++round) {
    Bucket bucket;
    ReducerPool pool(2);
    auto* buffer = reinterpret_cast<std::byte*>(bucket.buffer.data());
    const auto sums = std::make_shared<LocalSums>(*bucket.memory, nullptr, buffer,
                                                  AllReduceRing(Bucket::kBytes, Bucket::kNodes, 1),
                                                  /*first_block_only=*/false, pool);
    pool.Offer(sums);
    for (const std::size_t cell : {3U, 0U, 4U, 1U, 5U, 2U, 9U, 10U, 11U, 6U, 7U, 8U}) {
      Answer answer = TakeCell(*sums, cell);
      for (int tries = 0; answer == Answer::kNotReady && tries < 100'000'000; ++tries) {
        answer = TakeCell(*sums, cell);
      }
      REQUIRE(answer != Answer::kNotReady);
      const std::size_t begin = cell * kChunkBytes;
      if (answer == Answer::kTaken) bucket.memory->Pack(buffer, begin, begin + kChunkBytes);
      REQUIRE(bucket.IsSummed(cell));
      bucket.memory->Distribute(buffer, begin, begin + kChunkBytes, buffer + begin, false);
    }
    CHECK(bucket.tensors[0] == std::vector<float>(Bucket::kBytes / 4, 3.0F));
    sums->Close();
    CHECK(sums->Quiet());
  }
}

}  // namespace
}  // namespace ringd
