// Bursts of tensors of ordinary memory in a one-node job.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "client/core/lanes/node/background_helper.h"
#include "client/core/lanes/node/local_operations.h"
#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

constexpr std::uint64_t kLarge = 300'000;  // elements; 1.2 MB
constexpr std::uint64_t kWindow = LocalOperations::kStagedWindowBytes;

float SumOfTwo(std::size_t i) { return static_cast<float>(i + 1) + static_cast<float>(i + 2); }

// One rank's tensors and what it has submitted. Without assertions, for threads.
struct Burst {
  explicit Burst(std::size_t rank_number) : rank(rank_number) {}
  Burst(std::size_t rank_number, std::size_t tensors, std::uint64_t count) : Burst(rank_number) {
    for (std::size_t i = 0; i < tensors; ++i) Add(count);
  }

  void Add(std::uint64_t count) {
    const auto i = static_cast<std::uint32_t>(names.size());
    names.push_back(std::make_unique<Floats>(i, i, count));
    data.emplace_back(count);
    sequences.push_back(0);
    Fill(i, 0);
  }
  void Fill(std::size_t i, float offset) {
    std::fill(data[i].begin(), data[i].end(), static_cast<float>(rank + i + 1) + offset);
  }
  bool Submit(Member& member, std::size_t i) {
    return TrySubmitAnywhere(member, names[i]->registration, data[i].data(), data[i].data(),
                             sequences[i]);
  }
  bool Is(std::size_t i, float value) const {
    return std::all_of(data[i].begin(), data[i].end(), [&](float is) { return is == value; });
  }
  // Waits, and looks at the sum of what two ranks have filled in with the same offset.
  bool IsRight(Member& member, std::size_t i, float offset = 0) {
    OperationOutcome outcome;
    return TryFinish(member, sequences[i], outcome) && outcome.status == 0 &&
           Is(i, SumOfTwo(i) + 2 * offset);
  }

  const std::size_t rank;
  std::vector<std::unique_ptr<Floats>> names;
  std::vector<std::vector<float>> data;
  std::vector<std::uint64_t> sequences;
};

std::vector<std::size_t> Numbers(std::size_t count) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

struct PuttingOffJob : LocalJob {
  PuttingOffJob() : LocalJob(2, std::chrono::nanoseconds(0), false) {
    for (auto& member : members) member->Start(DirectReading::kIfAllowed, /*puts_off=*/true);
  }
};

TEST_CASE(
    "Put off: what another member writes of a tensor that nobody has been told of is rubbish") {
  PuttingOffJob job;
  Burst own(0, 6, kLarge);
  Burst other(1, 6, kLarge);
  for (std::size_t i = 0; i < 6; ++i) REQUIRE(own.Submit(job[0], i));
  REQUIRE(job[0].operations->AnyPutOff());
  REQUIRE(other.Submit(job[1], 5));
  // As if it had been published, and with another description: that would end it at once.
  SubmissionSlot& slot = job[1].memory.segment().Slot(5, 0, 0);
  slot.meta_id = 77;
  slot.occurrence.store(1, std::memory_order_release);
  // It really comes with the wait, and counts then.
  CHECK(own.IsRight(job[0], 5));
  CHECK(other.IsRight(job[1], 5));
}

// Both ranks at once, each in a thread: part(rank, failures).
template <typename Part>
void RunRanks(Part part) {
  std::atomic<int> failures{0};
  std::thread second([&] { part(std::size_t{1}, failures); });
  part(std::size_t{0}, failures);
  second.join();
  CHECK(failures == 0);
}

TEST_CASE("Put off: a burst goes through one block, in the order of submission") {
  constexpr std::size_t kTensors = 6;
  static_assert(kLarge * sizeof(float) > kWindow &&
                kTensors * kLarge * sizeof(float) < kArenaBytes);
  PuttingOffJob job;
  const JobSegmentView& segment = job[0].memory.segment();
  Burst bursts[] = {{0, kTensors, kLarge}, {1, kTensors, kLarge}};
  const auto slot_of = [&](std::size_t rank, std::size_t i, int step) -> const SubmissionSlot& {
    return segment.Slot(static_cast<std::uint32_t>(i), rank, static_cast<std::uint64_t>(step));
  };
  const auto is_published = [&](std::size_t rank, std::size_t i, int step) {
    return slot_of(rank, i, step).occurrence.load() == static_cast<std::uint64_t>(step) + 1;
  };
  for (int step = 0; step < 3; ++step) {
    const auto offset = static_cast<float>(step);
    for (Burst& burst : bursts) {
      for (std::size_t i = 0; i < kTensors; ++i) {
        burst.Fill(i, offset);
        REQUIRE(burst.Submit(job[burst.rank], i));
        CHECK(is_published(burst.rank, i, step) == (i == 0));
      }
    }
    // Tests only, in which nothing is let through before its time.
    const Clock::time_point deadline = InTenSeconds();
    for (std::size_t i = 0; i < kTensors; ++i) {
      const auto ended = [&](const Burst& burst) {
        return job[burst.rank].operations->Test(burst.sequences[i]) == WaitResult::kDone;
      };
      for (bool first = false, second = false; !first || !second;) {
        REQUIRE(Clock::now() < deadline);
        first = ended(bursts[0]);
        second = ended(bursts[1]);
        if (i + 1 < kTensors && !first) CHECK_FALSE(is_published(0, i + 1, step));
      }
      for (Burst& burst : bursts) {
        CHECK(burst.IsRight(job[burst.rank], i, offset));
        CHECK(slot_of(burst.rank, i, step).source_offset ==
              slot_of(burst.rank, 0, step).source_offset);
      }
    }
  }
}

TEST_CASE("Put off: results come out of place, in the arena, and of a broadcast's root") {
  const std::uint32_t kind = GENERATE(0, 1, 2);
  Burst bursts[] = {{0, 1, kLarge}, {1, 1, kLarge}};
  Floats tensors[] = {{1, 1, kLarge}, {1, 1, kLarge}};
  const std::vector<float> sources[] = {std::vector<float>(kLarge, 1),
                                        std::vector<float>(kLarge, 2)};
  std::vector<float> ordinary[] = {std::vector<float>(kLarge), std::vector<float>(kLarge)};
  PuttingOffJob job;
  float* results[2] = {};
  std::uint64_t sequences[2] = {};
  for (std::size_t m = 0; m < 2; ++m) {
    Registration& registration = tensors[m].registration;
    results[m] = ordinary[m].data();
    const void* source = sources[m].data();
    if (kind == 1) {
      const auto block = job[m].allocator.AllocateZeroed(kLarge * sizeof(float));
      REQUIRE(block.ok());
      results[m] = static_cast<float*>(*block);
    } else if (kind == 2) {
      registration.description.kind = CollectiveKind::kBroadcast;
      registration.description.root_rank = 10;
      registration.sends = m == 0;
      registration.receives = m != 0;
      if (m == 1) source = nullptr;
    }
    REQUIRE(bursts[m].Submit(job[m], 0));
    sequences[m] = SubmitAnywhere(job[m], registration, source, results[m]);
    // A receiver of a broadcast has nothing to copy.
    const SubmissionSlot& slot = job[m].memory.segment().Slot(1, static_cast<std::uint32_t>(m), 0);
    CHECK((slot.occurrence.load() == 0) == (kind != 2 || m == 0));
  }
  bool right = true;
  std::thread other([&] {
    OperationOutcome outcome;
    right = bursts[1].IsRight(job[1], 0) && TryFinish(job[1], sequences[1], outcome) &&
            outcome.status == 0;
  });
  CHECK(bursts[0].IsRight(job[0], 0));
  CHECK(Finish(job[0], sequences[0]).status == 0);
  other.join();
  CHECK(right);
  const float expected = kind == 2 ? 1.0F : 3.0F;
  for (const float* const result : results) {
    CHECK(std::count(result, result + kLarge, expected) == static_cast<std::ptrdiff_t>(kLarge));
  }
}

TEST_CASE("Put off: the occurrences of one name are seen in their order, wherever they lie") {
  Burst bursts[] = {{0, 2, kLarge}, {1, 2, kLarge}};
  PuttingOffJob job;
  std::uint64_t again[2] = {};
  float* in_arena[2] = {};
  for (Burst& burst : bursts) {
    Member& member = job[burst.rank];
    const auto block = member.allocator.AllocateZeroed(kLarge * sizeof(float));
    REQUIRE(block.ok());
    in_arena[burst.rank] = static_cast<float*>(*block);
    for (std::size_t i = 0; i < 2; ++i) REQUIRE(burst.Submit(member, i));
    in_arena[burst.rank][kLarge - 1] = 5;
    again[burst.rank] = SubmitAnywhere(member, burst.names[1]->registration, in_arena[burst.rank],
                                       in_arena[burst.rank]);
    CHECK(member.memory.segment().Slot(1, burst.rank, 0).occurrence.load() == 0);
    CHECK(member.memory.segment().Slot(1, burst.rank, 1).occurrence.load() == 0);
  }
  bool right = true;
  std::thread other([&] {
    OperationOutcome outcome;
    for (std::size_t i = 0; i < 2; ++i) right &= bursts[1].IsRight(job[1], i);
    right &= TryFinish(job[1], again[1], outcome) && outcome.status == 0;
  });
  for (std::size_t i = 0; i < 2; ++i) CHECK(bursts[0].IsRight(job[0], i));
  CHECK(Finish(job[0], again[0]).status == 0);
  other.join();
  CHECK(right);
  for (const float* const result : in_arena) CHECK(result[kLarge - 1] == 10.0F);
}

TEST_CASE("Put off: ranks may submit and wait in any order") {
  constexpr std::size_t kTensors = 24;
  constexpr std::uint64_t kCount = 70'000;
  static_assert(kTensors * kCount * sizeof(float) > kWindow);
  static_assert(kTensors * kCount * sizeof(float) < kArenaBytes);
  const bool waits_backwards = GENERATE(false, true);
  PuttingOffJob job;
  RunRanks([&](std::size_t rank, std::atomic<int>& failures) {
    Burst burst(rank, kTensors, kCount);
    std::vector<std::size_t> order = Numbers(kTensors);
    if (rank == 1) std::reverse(order.begin(), order.end());
    for (const std::size_t i : order) {
      if (!burst.Submit(job[rank], i)) ++failures;
    }
    if (waits_backwards) std::reverse(order.begin(), order.end());
    for (const std::size_t i : order) {
      if (!burst.IsRight(job[rank], i)) ++failures;
    }
  });
}

TEST_CASE("Put off: who computes and does not wait keeps nobody waiting") {
  constexpr std::size_t kTensors = 24;
  constexpr std::uint64_t kCount = 70'000;
  Burst computing(0, kTensors, kCount);
  Burst waiting(1, kTensors, kCount);
  PuttingOffJob job;
  BackgroundHelper helper(*job[0].operations, AlwaysRoom());
  REQUIRE(helper.Start().ok());
  for (std::size_t i = 0; i < kTensors; ++i) REQUIRE(computing.Submit(job[0], i));
  // In the other order, so that nothing ends before much has been placed.
  for (std::size_t i = kTensors; i-- > 0;) REQUIRE(waiting.Submit(job[1], i));
  for (std::size_t i = kTensors; i-- > 0;) CHECK(waiting.IsRight(job[1], i));
  for (std::size_t i = 0; i < kTensors; ++i) CHECK(computing.IsRight(job[0], i));
}

TEST_CASE("Put off: any order and size, with helpers") {
  constexpr std::size_t kTensors = 40;
  Burst bursts[] = {Burst(0), Burst(1)};
  PuttingOffJob job;
  std::vector<std::unique_ptr<BackgroundHelper>> helpers;
  for (auto& member : job.members) {
    helpers.push_back(std::make_unique<BackgroundHelper>(*member->operations, AlwaysRoom()));
    REQUIRE(helpers.back()->Start().ok());
  }
  RunRanks([&](std::size_t rank, std::atomic<int>& failures) {
    std::mt19937 random(static_cast<unsigned>(rank));
    Burst& burst = bursts[rank];
    for (std::size_t i = 0; i < kTensors; ++i) burst.Add(std::uint64_t{100} << (i % 12));
    for (int step = 0; step < 20; ++step) {
      const auto offset = static_cast<float>(step);
      std::vector<std::size_t> order = Numbers(kTensors);
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        burst.Fill(i, offset);
        if (!burst.Submit(job[rank], i)) ++failures;
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        if (!burst.IsRight(job[rank], i, offset)) ++failures;
      }
    }
  });
}

TEST_CASE("Put off: when the context ends so do they") {
  PuttingOffJob job;
  Burst burst(0, 6, kLarge);
  for (std::size_t i = 0; i < 6; ++i) REQUIRE(burst.Submit(job[0], i));
  job[0].state.Lose(absl::AbortedError("over"));
  job[0].operations->GiveUp();
  CHECK(job[0].operations->Wait(burst.sequences[5], InTenSeconds()) == WaitResult::kEnded);
  for (std::uint32_t i = 1; i < 6; ++i) {
    CHECK(job[0].memory.segment().Slot(i, 0, 0).occurrence.load() == 0);
  }
  OperationOutcome outcome;
  OperationEnd end;
  CHECK(job[0].operations->Consume(burst.sequences[5], outcome, end));
  CHECK_FALSE(outcome.completed);
  CHECK_FALSE(burst.Submit(job[0], 0));
}

}  // namespace
}  // namespace ringd::client
