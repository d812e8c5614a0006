#include "daemon/execution/result_copies.h"

#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "daemon/execution/reducer_pool.h"
#include "tests/daemon/execution/ranks_by_node.h"

namespace ringd {
namespace {

constexpr std::size_t kRangeBytes = 256;
constexpr std::size_t kRanges = 12;
constexpr std::size_t kBytes = kRanges * kRangeBytes;
constexpr float kNothing = -1.0F;

class CountedReducers final : public Reducers {
 public:
  void Offer(std::shared_ptr<ReducerWork>) override {}
  void Tell() noexcept override { ++told; }
  void Withdraw(const ReducerWork&) override {}
  void WakeEngine() noexcept override { ++wakes; }
  int told = 0;
  int wakes = 0;
};

// The ranks' tensors, of which nothing is written, and a buffer that holds each element's index.
struct Bucket {
  explicit Bucket(std::size_t member_count) {
    TensorMeta meta;
    meta.shape = {kBytes / 4};
    const std::vector<const TensorMeta*> metas = {&meta};
    layout = std::make_unique<BucketLayout>(metas, ConsecutiveRanks({4, 4}));
    tensors.assign(member_count, std::vector<float>(kBytes / 4, kNothing));
    std::vector<TensorBuffers> buffers;
    for (auto& values : tensors) {
      auto* bytes = reinterpret_cast<std::byte*>(values.data());
      buffers.push_back({bytes, bytes});
    }
    memory = std::make_unique<BucketMemory>(*layout, static_cast<int>(member_count), buffers, -1);
    for (std::size_t i = 0; i < kBytes / 4; ++i) buffer.push_back(static_cast<float>(i));
  }

  std::shared_ptr<ResultCopies> Copies(Reducers& reducers) {
    return std::make_shared<ResultCopies>(
        *memory, nullptr, reinterpret_cast<const std::byte*>(buffer.data()), kRanges, reducers);
  }
  void Add(ResultCopies& copies, std::size_t range, bool first_member = false) {
    const std::size_t begin = range * kRangeBytes;
    if (first_member) {
      auto* result = reinterpret_cast<const std::byte*>(buffer.data()) + begin;
      memory->CopyToFirstMember(begin, begin + kRangeBytes, result);
    }
    copies.Add(begin, begin + kRangeBytes,
               first_member ? ResultPlace::kFirstMember : ResultPlace::kBuffer);
  }
  bool Has(std::size_t member, std::size_t range) const { return Count(member, range) == kFloats; }
  bool HasNothingOf(std::size_t member, std::size_t range) const {
    for (std::size_t i = range * kFloats; i < (range + 1) * kFloats; ++i) {
      if (tensors[member][i] != kNothing) return false;
    }
    return true;
  }

  static constexpr std::size_t kFloats = kRangeBytes / 4;
  std::size_t Count(std::size_t member, std::size_t range) const {
    std::size_t count = 0;
    for (std::size_t i = range * kFloats; i < (range + 1) * kFloats; ++i) {
      if (tensors[member][i] == static_cast<float>(i)) ++count;
    }
    return count;
  }

  std::vector<std::vector<float>> tensors;
  std::vector<float> buffer;
  std::unique_ptr<BucketLayout> layout;
  std::unique_ptr<BucketMemory> memory;
  CountedReducers reducers;
};

TEST_CASE("ResultCopies: nothing to claim and all done before anything is added") {
  Bucket bucket(2);
  const auto copies = bucket.Copies(bucket.reducers);
  CHECK_FALSE(copies->Claim().has_value());
  CHECK_FALSE(copies->CopyOne());
  CHECK(copies->MayGrow());
  CHECK(copies->Done());
  CHECK(copies->Quiet());
}

TEST_CASE("ResultCopies: ranges in the order in which they came, each rank's copy once") {
  for (const std::size_t members : {2U, 4U, 5U, 8U, 9U, 20U}) {
    for (const bool first_member : {false, true}) {
      INFO(members << " members");
      Bucket bucket(members);
      const auto copies = bucket.Copies(bucket.reducers);
      const std::size_t parts = (members + ResultCopies::kMembersPerPart - 1) / 4;
      for (std::size_t range = 0; range < kRanges; ++range) {
        CHECK(copies->HasRoom());
        bucket.Add(*copies, kRanges - 1 - range, first_member);
      }
      CHECK_FALSE(copies->HasRoom());
      for (std::size_t range = kRanges; range-- > 0;) {
        for (std::size_t part = 0; part < parts; ++part) {
          CHECK_FALSE(copies->Done());
          const auto claimed = copies->Claim();
          REQUIRE(claimed.has_value());
          copies->Finish(*claimed);
        }
        for (std::size_t m = 0; m < members; ++m) CHECK(bucket.Has(m, range));
        if (range > 0) CHECK(bucket.HasNothingOf(members - 1, range - 1));
      }
      CHECK(copies->Done());
      CHECK(bucket.reducers.wakes == 0);
    }
  }
}

TEST_CASE("ResultCopies: sleepers are told when the engine is behind, not for each piece") {
  Bucket bucket(2);
  const auto copies = bucket.Copies(bucket.reducers);
  bucket.Add(*copies, 0);
  CHECK(bucket.reducers.told == 0);
  CHECK(copies->CopyOne());
  bucket.Add(*copies, 1);
  CHECK(bucket.reducers.told == 0);
  bucket.Add(*copies, 2);
  CHECK(bucket.reducers.told == 1);
}

TEST_CASE("ResultCopies: the engine copies what nobody has begun and is woken for the rest") {
  Bucket bucket(3);
  const auto copies = bucket.Copies(bucket.reducers);
  bucket.Add(*copies, 0);
  bucket.Add(*copies, 1);
  REQUIRE(copies->Claim() == 0);
  CHECK_FALSE(copies->Done());
  CHECK(copies->CopyOne());
  CHECK(bucket.Has(2, 1));
  CHECK_FALSE(copies->CopyOne());
  CHECK_FALSE(copies->Done());
  CHECK(bucket.HasNothingOf(0, 0));
  CHECK(bucket.reducers.wakes == 0);
  copies->Finish(0);
  CHECK(bucket.reducers.wakes == 1);
  CHECK(copies->Done());
}

TEST_CASE("ResultCopies: a reducer that ends before it is awaited wakes nobody") {
  Bucket bucket(2);
  const auto copies = bucket.Copies(bucket.reducers);
  bucket.Add(*copies, 0);
  REQUIRE(copies->Claim() == 0);
  copies->Finish(0);
  CHECK(copies->Done());
  CHECK(bucket.reducers.wakes == 0);
}

TEST_CASE("ResultCopies: once closed only what was claimed is written, and its end is told") {
  Bucket bucket(4);
  const auto copies = bucket.Copies(bucket.reducers);
  for (std::size_t range = 0; range < 4; ++range) bucket.Add(*copies, range);
  REQUIRE(copies->Claim() == 0);
  REQUIRE(copies->Claim() == 1);
  copies->Finish(0);
  copies->Close();
  copies->Close();
  CHECK_FALSE(copies->Quiet());
  CHECK_FALSE(copies->MayGrow());
  CHECK_FALSE(copies->HasRoom());
  CHECK_FALSE(copies->Claim().has_value());
  CHECK_FALSE(copies->CopyOne());
  copies->Finish(1);
  CHECK(bucket.reducers.wakes == 1);
  CHECK(copies->Quiet());
  for (std::size_t m = 0; m < 4; ++m) {
    CHECK(bucket.Has(m, 1));
    CHECK(bucket.HasNothingOf(m, 2));
    CHECK(bucket.HasNothingOf(m, 3));
  }
}

// One thread plays all, so each seed is one interleaving of the engine's and three reducers' steps.
TEST_CASE("ResultCopies: any interleaving: each part has one writer, none after the end") {
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const std::size_t members = 2 + random() % 9;
    const bool gives_up = seed % 2 == 0;
    Bucket bucket(members);
    const auto copies = bucket.Copies(bucket.reducers);
    const std::size_t parts_per_range = (members + ResultCopies::kMembersPerPart - 1) / 4;
    std::size_t added = 0;
    std::vector<std::size_t> amid;
    std::vector<int> claims(kRanges * parts_per_range);
    std::size_t finished = 0;
    bool awaited = false;
    bool closed = false;
    for (int step = 0; step < 200; ++step) {
      switch (random() % 6) {
        case 0:
          if (added < kRanges && !closed) bucket.Add(*copies, added++, random() % 2 == 0);
          break;
        case 1:
        case 2:
          if (amid.size() >= 3) break;
          if (const auto part = copies->Claim()) {
            REQUIRE_FALSE(closed);
            REQUIRE(*part < added * parts_per_range);
            ++claims[*part];
            amid.push_back(*part);
          }
          break;
        case 3: {
          if (amid.empty()) break;
          std::swap(amid[random() % amid.size()], amid.back());
          const int wakes = bucket.reducers.wakes;
          copies->Finish(amid.back());
          amid.pop_back();
          ++finished;
          REQUIRE(bucket.reducers.wakes == wakes + (awaited ? 1 : 0));
          break;
        }
        case 4:
          if (copies->CopyOne()) ++finished;
          break;
        case 5:
          if (gives_up && step > 60 && random() % 8 == 0) {
            copies->Close();
            closed = awaited = true;
          } else if (!closed) {
            const bool done = copies->Done();
            REQUIRE(done == (finished == added * parts_per_range));
            awaited = awaited || (!done && finished + amid.size() == added * parts_per_range);
          }
          break;
      }
      REQUIRE(copies->Quiet() == (amid.empty() && (closed || finished == added * parts_per_range)));
    }
    for (const int times : claims) REQUIRE(times <= 1);
    for (const std::size_t part : amid) copies->Finish(part);
    if (!closed) {
      while (copies->CopyOne()) {
      }
      REQUIRE(copies->Done());
      for (std::size_t range = 0; range < kRanges; ++range) {
        for (std::size_t m = 0; m < members; ++m) {
          REQUIRE((range < added ? bucket.Has(m, range) : bucket.HasNothingOf(m, range)));
        }
      }
    }
    REQUIRE(copies->Quiet());
  }
}

// The engine adds and gives up at some moment, while two threads copy: when it is quiet its memory
// may go, and ThreadSanitizer finds nothing.
TEST_CASE("ResultCopies: engine and reducers share the parts without touching each other's") {
  ReducerPool pool(2);
  for (std::size_t round = 0; round < 300; ++round) {
    Bucket bucket(2 + round % 7);
    const auto copies = bucket.Copies(pool);
    pool.Offer(copies);
    const bool gives_up = round % 3 == 0;
    const std::size_t count = gives_up ? round % kRanges : kRanges;
    for (std::size_t range = 0; range < count; ++range) {
      bucket.Add(*copies, range, range % 2 == 0);
      if (round % 5 == 0) copies->CopyOne();
    }
    if (!gives_up) {
      for (int tries = 0; !copies->Done(); ++tries) {
        REQUIRE(tries < 100'000'000);
        copies->CopyOne();
      }
      for (const auto& tensor : bucket.tensors) REQUIRE(tensor == bucket.buffer);
    }
    pool.Withdraw(*copies);
    copies->Close();
    for (int tries = 0; !copies->Quiet(); ++tries) {
      REQUIRE(tries < 100'000'000);
      std::this_thread::yield();
    }
    for (auto& tensor : bucket.tensors) tensor.assign(tensor.size(), kNothing);
  }
}

}  // namespace
}  // namespace ringd
