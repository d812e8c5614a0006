// Bursts of tensors of ordinary memory in a one-node job: more than the arena, or the caches, would hold at once.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "client/core/local/background_helper.h"
#include "client/core/local/local_operations.h"
#include "tests/client/core/local/local_job.h"

namespace ringd::client {
namespace {

constexpr std::uint64_t kLarge = 300'000;  // elements; 1.2 MB
constexpr std::uint64_t kWindow = LocalOperations::kStagedWindowBytes;

// As a context submits. Without assertions, as what follows: Catch's are for the test's own thread.
bool TrySubmitOrPutOff(Member& member, Registration& registration, float* data,
                       std::uint64_t& sequence) {
  const void* source = data;
  void* destination = data;
  const auto staged = member.staging.IsStaged(registration, source, destination);
  if (!staged.ok()) return false;
  if (!member.operations->PutsOff(registration, *staged)) {
    return TrySubmitAnywhere(member, registration, source, destination, sequence);
  }
  return member.operations->PutOff(registration, source, destination, sequence) ==
         SubmitResult::kOk;
}

float SumOfTwo(std::size_t i) { return static_cast<float>(i + 1) + static_cast<float>(i + 2); }

// One rank's tensors and what it has submitted.
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
    return TrySubmitOrPutOff(member, names[i]->registration, data[i].data(), sequences[i]);
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

// Both ranks at once, each in a thread: part(rank, failures).
template <typename Part>
void RunRanks(Part part) {
  std::atomic<int> failures{0};
  std::thread second([&] { part(std::size_t{1}, failures); });
  part(std::size_t{0}, failures);
  second.join();
  CHECK(failures == 0);
}

TEST_CASE("Put off: a burst larger than the arena goes through a few blocks of it") {
  constexpr std::size_t kTensors = 20;
  static_assert(kTensors * kLarge * sizeof(float) > 2 * kArenaBytes);
  PuttingOffJob job;
  RunRanks([&](std::size_t rank, std::atomic<int>& failures) {
    Burst burst(rank, kTensors, kLarge);
    for (int step = 0; step < 3; ++step) {
      const auto offset = static_cast<float>(step);
      for (std::size_t i = 0; i < kTensors; ++i) {
        burst.Fill(i, offset);
        if (!burst.Submit(job[rank], i)) ++failures;
      }
      for (std::size_t i = 0; i < kTensors; ++i) {
        if (!burst.IsRight(job[rank], i, offset)) ++failures;
      }
    }
  });
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
  BackgroundHelper helper(*job[0].operations);
  REQUIRE(helper.Start().ok());
  for (std::size_t i = 0; i < kTensors; ++i) REQUIRE(computing.Submit(job[0], i));
  // In the other order, so that nothing ends before much has been placed.
  for (std::size_t i = kTensors; i-- > 0;) REQUIRE(waiting.Submit(job[1], i));
  for (std::size_t i = kTensors; i-- > 0;) CHECK(waiting.IsRight(job[1], i));
  for (std::size_t i = 0; i < kTensors; ++i) CHECK(computing.IsRight(job[0], i));
}

TEST_CASE("Put off: what is tested only is placed, too") {
  constexpr std::size_t kTensors = 6;
  PuttingOffJob job;
  Burst bursts[] = {{0, kTensors, kLarge}, {1, kTensors, kLarge}};
  for (Burst& burst : bursts) {
    for (std::size_t i = 0; i < kTensors; ++i) REQUIRE(burst.Submit(job[burst.rank], i));
  }
  const Clock::time_point deadline = InTenSeconds();
  std::vector<bool> ended(2 * kTensors);
  while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
    REQUIRE(Clock::now() < deadline);
    for (std::size_t k = 0; k < 2 * kTensors; ++k) {
      Burst& burst = bursts[k % 2];
      Member& member = job[burst.rank];
      const std::uint64_t sequence = burst.sequences[k / 2];
      if (ended[k] || member.operations->Test(sequence) == WaitResult::kTimeout) continue;
      CHECK(burst.IsRight(member, k / 2));
      ended[k] = true;
    }
  }
}

TEST_CASE("Put off: many threads, orders and sizes, with helpers") {
  constexpr std::size_t kTensors = 40;
  Burst bursts[] = {Burst(0), Burst(1)};
  PuttingOffJob job;
  std::vector<std::unique_ptr<BackgroundHelper>> helpers;
  for (auto& member : job.members) {
    helpers.push_back(std::make_unique<BackgroundHelper>(*member->operations));
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

TEST_CASE("Put off: what finds no room ends with the reason, and the next of its name moves up") {
  static_assert(kLarge * sizeof(float) > kWindow);
  PuttingOffJob job;
  Burst first(0, 2, kLarge);
  Burst second(1, 2, kLarge);
  Registration& put_off = first.names[1]->registration;
  REQUIRE(first.Submit(job[0], 0));
  CHECK(job[0].operations->PutsOff(put_off, /*staged=*/true));
  CHECK_FALSE(job[0].operations->PutsOff(put_off, /*staged=*/false));
  std::vector<std::uint64_t> taken;
  for (;;) {
    const auto block = job[0].allocator.AllocateOffset(64 << 10);
    if (!block.ok()) break;
    taken.push_back(*block);
  }
  std::vector<float> again(kLarge, 7.0F);
  std::uint64_t next = 0;
  REQUIRE(first.Submit(job[0], 1));
  REQUIRE(TrySubmitOrPutOff(job[0], put_off, again.data(), next));

  const OperationOutcome refused = Finish(job[0], first.sequences[1]);
  CHECK(refused.status == static_cast<std::int32_t>(absl::StatusCode::kResourceExhausted));
  REQUIRE(refused.text != nullptr);
  CHECK(refused.text->find("'t1'") != std::string::npos);
  CHECK(refused.text->find("arena") != std::string::npos);
  CHECK(first.Is(1, 2.0F));  // untouched

  for (const std::uint64_t offset : taken) job[0].allocator.FreeOffset(offset);
  bool right = true;
  std::thread other([&] {
    for (std::size_t i = 0; i < 2; ++i) right &= second.Submit(job[1], i);
    OperationOutcome outcome;
    for (std::size_t i = 0; i < 2; ++i) right &= TryFinish(job[1], second.sequences[i], outcome);
  });
  CHECK(first.IsRight(job[0], 0));
  CHECK(Finish(job[0], next).status == 0);
  other.join();
  CHECK(right);
  CHECK(std::all_of(again.begin(), again.end(), [](float value) { return value == 10.0F; }));
  CHECK(second.Is(1, 10.0F));
}

TEST_CASE("Put off: when the context ends so do they") {
  PuttingOffJob job;
  Burst burst(0, 6, kLarge);
  for (std::size_t i = 0; i < 6; ++i) REQUIRE(burst.Submit(job[0], i));
  job[0].state.Lose(absl::AbortedError("over"));
  job[0].operations->GiveUp();
  CHECK(job[0].operations->Wait(burst.sequences[5], InTenSeconds()) == WaitResult::kEnded);
  OperationOutcome outcome;
  OperationEnd end;
  CHECK(job[0].operations->Consume(burst.sequences[5], outcome, end));
  CHECK_FALSE(outcome.completed);
  std::uint64_t sequence = 0;
  CHECK_FALSE(
      TrySubmitOrPutOff(job[0], burst.names[0]->registration, burst.data[0].data(), sequence));
}

}  // namespace
}  // namespace ringd::client
