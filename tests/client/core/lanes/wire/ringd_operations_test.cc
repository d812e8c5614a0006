// Operations without gRPC or sockets: the rings, with a thread of the test as the engine. Runs
// under ThreadSanitizer too.
#include "client/core/lanes/wire/ringd_operations.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/core/tensors/registrations.h"
#include "tests/client/core/lanes/wire/ringd_fixture.h"

namespace ringd::client {
namespace {

TEST_CASE("Operations: sequences have no gap and each carries its own end") {
  Fixture fixture;
  int marks[40] = {};
  for (int i = 0; i < 40; ++i) {
    CHECK(fixture.Submit(&marks[i]) == static_cast<std::uint64_t>(i));
    Submission seen;
    REQUIRE(fixture.segment.submissions.TryPop(seen) == RingResult::kOk);
    CHECK(seen.sequence == static_cast<std::uint64_t>(i));
    fixture.segment.Complete(seen.sequence);
  }
  for (int i = 39; i >= 0; --i) {
    OperationOutcome outcome;
    OperationEnd end;
    REQUIRE(fixture.operations.Wait(static_cast<std::uint64_t>(i), InTenSeconds()) ==
            WaitResult::kDone);
    REQUIRE(fixture.operations.Consume(static_cast<std::uint64_t>(i), outcome, end));
    CHECK(outcome.completed);
    CHECK(end.copy_to == &marks[i]);
    CHECK_FALSE(fixture.operations.Consume(static_cast<std::uint64_t>(i), outcome, end));
  }
  CHECK(fixture.operations.in_flight() == 0);
}

TEST_CASE("Operations: what ended well is taken out in one go, up to what did not") {
  Fixture fixture;
  int mark = 0;
  // Twice, so that slots are used again after each way of ending.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::uint64_t> sequences;
    for (std::uint32_t i = 0; i < kCapacity; ++i) {
      Submission record{};
      OperationEnd end;
      if (i % 3 == 1) end.copy_from = end.copy_to = &mark;  // else it is nothing
      REQUIRE(fixture.operations.TrySubmit(record, end) == SubmitResult::kOk);
      sequences.push_back(record.sequence);
      Submission taken;
      REQUIRE(fixture.segment.submissions.TryPop(taken) == RingResult::kOk);
    }
    constexpr std::size_t kFailed = 9;
    const auto status = static_cast<std::int32_t>(absl::StatusCode::kAborted);
    for (std::size_t i = 0; i + 1 < kCapacity; ++i) {
      fixture.segment.Complete(sequences[i], i == kFailed ? status : 0);
    }
    std::vector<OperationEnd> ends;
    CHECK(fixture.operations.ConsumeSucceeded(sequences, ends) == kFailed);
    CHECK(ends.size() == 3);
    for (const OperationEnd& end : ends) CHECK(end.copy_from == &mark);
    OperationOutcome outcome;
    OperationEnd end;
    CHECK_FALSE(fixture.operations.Consume(sequences[0], outcome, end));
    REQUIRE(fixture.operations.Consume(sequences[kFailed], outcome, end));
    CHECK(outcome.status == status);
    ends.clear();
    const auto rest = std::span(sequences).subspan(kFailed + 1);
    CHECK(fixture.operations.ConsumeSucceeded(rest, ends) == rest.size() - 1);
    CHECK(ends.size() == 2);
    CHECK(fixture.operations.in_flight() == 1);
    fixture.segment.Complete(sequences.back());
    REQUIRE(fixture.operations.Wait(sequences.back(), InTenSeconds()) == WaitResult::kDone);
    REQUIRE(fixture.operations.Consume(sequences.back(), outcome, end));
    CHECK(outcome.completed);
    CHECK(outcome.status == 0);
    CHECK(outcome.text == nullptr);
  }
}

TEST_CASE("Operations: a number that no operation has takes none out, however long it is") {
  Fixture fixture;
  Submission record{};
  REQUIRE(fixture.operations.TrySubmit(record, {}) == SubmitResult::kOk);
  Submission taken;
  REQUIRE(fixture.segment.submissions.TryPop(taken) == RingResult::kOk);
  fixture.segment.Complete(record.sequence);
  CHECK(fixture.operations.Test(record.sequence) == WaitResult::kDone);
  std::vector<OperationEnd> ends;
  for (const int bit : {32, 60, 61, 62, 63}) {
    const std::uint64_t longer = record.sequence + (std::uint64_t{1} << bit);
    CHECK(fixture.operations.ConsumeSucceeded({&longer, 1}, ends) == 0);
  }
  CHECK(fixture.operations.ConsumeSucceeded({&record.sequence, 1}, ends) == 1);
}

TEST_CASE("Operations: who takes one out while another thread copies it gives the processor up") {
  Fixture fixture;
  Registration tensor;
  tensor.bytes = StagedCopies::kLeastBytes;
  Submission record{};
  OperationEnd end;
  end.registration = &tensor;
  end.progress = fixture.copies.TakeRecord();
  end.copy_from = end.copy_to = &tensor;  // no piece ever comes
  REQUIRE(fixture.operations.TrySubmit(record, end) == SubmitResult::kOk);
  std::thread waiter(
      [&] { fixture.operations.Wait(record.sequence, Clock::now() + std::chrono::seconds(1)); });
  const Clock::time_point start = Clock::now();
  while (fixture.operations.waiters() == 0 && Clock::now() - start < std::chrono::seconds(1)) {
    std::this_thread::yield();
  }
  const auto processor_time = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto before = processor_time();
  OperationOutcome outcome;
  CHECK(fixture.operations.Consume(record.sequence, outcome, end));
  CHECK(processor_time() - before < std::chrono::milliseconds(400));
  CHECK_FALSE(outcome.completed);
  waiter.join();
}

TEST_CASE("Operations: a full ring is reported and a refused submission leaves no gap") {
  Fixture fixture;
  for (std::uint32_t i = 0; i < kCapacity; ++i) fixture.Submit();
  Submission record{};
  CHECK(fixture.operations.TrySubmit(record, {}) == SubmitResult::kFull);
  Submission seen;
  REQUIRE(fixture.segment.submissions.TryPop(seen) == RingResult::kOk);
  // Taken, but not completed: still no room.
  CHECK(fixture.operations.TrySubmit(record, {}) == SubmitResult::kFull);
  fixture.segment.Complete(0);
  CHECK(fixture.Submit() == kCapacity);
}

TEST_CASE("Operations: the engine is woken once per sleep, and only when it sleeps") {
  Fixture fixture;
  std::uint64_t rung = 0;
  fixture.Submit();
  CHECK(::read(fixture.segment.wakeup.get(), &rung, sizeof(rung)) < 0);
  fixture.segment.view.header->engine_sleeps.store(1);
  fixture.Submit();
  fixture.Submit();
  fixture.Submit();
  REQUIRE(::read(fixture.segment.wakeup.get(), &rung, sizeof(rung)) == sizeof(rung));
  CHECK(rung == 1);
}

TEST_CASE("Operations: the first submission after an end was seen says so, and no other") {
  Fixture fixture;
  const auto flags_of_next = [&] {
    fixture.Submit();
    Submission seen;
    REQUIRE(fixture.segment.submissions.TryPop(seen) == RingResult::kOk);
    return seen.flags;
  };
  CHECK(flags_of_next() == 0);
  CHECK(flags_of_next() == 0);
  fixture.segment.Complete(0);
  fixture.segment.Complete(1);
  // Nobody has looked yet.
  CHECK(flags_of_next() == 0);
  OperationOutcome outcome;
  OperationEnd end;
  REQUIRE(fixture.operations.Wait(0, InTenSeconds()) == WaitResult::kDone);
  REQUIRE(fixture.operations.Consume(0, outcome, end));
  CHECK(flags_of_next() == kFollowsWait);
  CHECK(flags_of_next() == 0);
  CHECK(fixture.operations.Test(1) == WaitResult::kDone);
  CHECK(flags_of_next() == kFollowsWait);
  CHECK(fixture.operations.Test(2) == WaitResult::kTimeout);
  CHECK(flags_of_next() == 0);
}

TEST_CASE("Operations: cursors that jump end the session") {
  Fixture fixture;
  const std::uint64_t sequence = fixture.Submit();
  SECTION("of the completion ring") {
    fixture.segment.view.completion_cursors->produced.store(1000);
    CHECK(fixture.operations.Wait(sequence, InTenSeconds()) == WaitResult::kEnded);
    CHECK(absl::IsInternal(fixture.state.status()));
  }
  SECTION("of the submission ring") {
    for (std::uint32_t i = 1; i < kCapacity; ++i) fixture.Submit();
    fixture.segment.view.submission_cursors->consumed.store(1000);
    fixture.segment.Complete(sequence);
    Submission record{};
    CHECK(fixture.operations.TrySubmit(record, {}) == SubmitResult::kEnded);
    CHECK(absl::IsInternal(fixture.state.status()));
  }
}

TEST_CASE("Operations: waiters wake when the session is lost, with and without spinning") {
  Fixture fixture(GENERATE(std::chrono::microseconds(0), std::chrono::microseconds(20)));
  const std::uint64_t sequence = fixture.Submit();
  WaitResult result = WaitResult::kDone;
  std::thread waiter([&] { result = fixture.operations.Wait(sequence, InTenSeconds()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = Clock::now();
  fixture.state.Lose(absl::UnavailableError("gone"));
  fixture.operations.WakeAll();
  waiter.join();
  CHECK(result == WaitResult::kEnded);
  CHECK(Clock::now() - start < std::chrono::seconds(5));
  OperationOutcome outcome;
  OperationEnd end;
  REQUIRE(fixture.operations.Consume(sequence, outcome, end));
  CHECK_FALSE(outcome.completed);
}

TEST_CASE("Operations: many submitters, many waiters and completions in any order lose nothing") {
  Fixture fixture(GENERATE(std::chrono::microseconds(0), std::chrono::microseconds(20)));
  constexpr int kThreads = 6;
  constexpr int kRounds = 1500;
  std::atomic<bool> stop{false};
  std::thread engine([&] {
    Segment& segment = fixture.segment;
    std::mt19937 random(7);
    std::vector<std::uint64_t> held;
    while (!stop) {
      Submission seen;
      while (segment.submissions.TryPop(seen) == RingResult::kOk) held.push_back(seen.sequence);
      bool completed = false;
      while (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        CompletionRecord record{};
        record.sequence = held.back();
        if (segment.completions.TryPush(record) != RingResult::kOk) break;
        held.pop_back();
        completed = true;
        if (random() % 4 == 0) break;
      }
      if (completed) segment.view.header->completions.Ring();
      if (!held.empty()) continue;
      segment.view.header->engine_sleeps.store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (!segment.submissions.HasWork()) {
        pollfd entry{segment.wakeup.get(), POLLIN, 0};
        std::uint64_t count = 0;
        if (::poll(&entry, 1, 1000) > 0) (void)!::read(segment.wakeup.get(), &count, sizeof(count));
      }
      segment.view.header->engine_sleeps.store(0, std::memory_order_relaxed);
    }
  });
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      struct Pending {
        std::uint64_t sequence;
        std::uintptr_t mark;
      };
      std::vector<Pending> pending;
      for (int round = 0; round < kRounds; ++round) {
        Submission record{};
        OperationEnd end;
        const auto mark = static_cast<std::uintptr_t>(t * kRounds + round);
        end.copy_to = reinterpret_cast<void*>(mark);
        while (fixture.operations.TrySubmit(record, end) == SubmitResult::kFull) {
          if (!fixture.operations.WaitForRoom({}, Clock::time_point::max())) ++wrong;
        }
        pending.push_back({record.sequence, mark});
        while (pending.size() > random() % 6) {
          std::swap(pending[random() % pending.size()], pending.back());
          OperationOutcome outcome;
          const Pending waited = pending.back();
          pending.pop_back();
          if (fixture.operations.Wait(waited.sequence, InTenSeconds()) != WaitResult::kDone ||
              !fixture.operations.Consume(waited.sequence, outcome, end) || !outcome.completed ||
              reinterpret_cast<std::uintptr_t>(end.copy_to) != waited.mark) {
            ++wrong;
          }
        }
      }
      for (const Pending& waited : pending) {
        if (fixture.operations.Wait(waited.sequence, InTenSeconds()) != WaitResult::kDone) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  stop = true;
  const std::uint64_t one = 1;
  (void)!::write(fixture.segment.wakeup.get(), &one, sizeof(one));
  engine.join();
  CHECK(wrong == 0);
  CHECK(fixture.operations.in_flight() == 0);
  CHECK(fixture.operations.waiters() == 0);
}

}  // namespace
}  // namespace ringd::client
