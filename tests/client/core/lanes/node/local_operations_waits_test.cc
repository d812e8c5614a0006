// Waits for operations of a one-node job, and what is left of those that have ended. Runs under
// ThreadSanitizer too.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "client/core/lanes/node/local_operations.h"
#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

TEST_CASE(
    "LocalOperations: an operation that is not complete times out and can be waited for again") {
  LocalJob job(2, std::chrono::microseconds(50));
  Floats tensor(0, 0, 5000);
  const std::uint64_t sequence = Submit(job[0], tensor.registration, job[0].At(0));
  CHECK(job[0].operations->Test(sequence) == WaitResult::kTimeout);
  CHECK(job[0].operations->Wait(sequence, Clock::now() + std::chrono::milliseconds(5)) ==
        WaitResult::kTimeout);
  Submit(job[1], tensor.registration, job[1].At(0));
  CHECK(Finish(job[0], sequence).status == 0);
  CHECK(job[0].operations->Wait(sequence, InTenSeconds()) == WaitResult::kUnknown);
}

TEST_CASE("LocalOperations: a sleeping waiter is woken by the rank that comes last") {
  LocalJob job(2);
  const std::uint64_t count = GENERATE(1, 5000);
  Floats tensor(0, 0, count);
  const std::uint64_t sequence = Submit(job[0], tensor.registration, job[0].At(0));
  std::atomic<bool> done{false};
  std::thread waiter(
      [&] { done = job[0].operations->Wait(sequence, InTenSeconds()) == WaitResult::kDone; });
  while (job[0].operations->waiters() == 0) std::this_thread::yield();
  Submit(job[1], tensor.registration, job[1].At(0));
  waiter.join();
  CHECK(done);
}

// So that neither rank has room for another one of this tensor.
void FillRoom(LocalJob& job, Floats& tensor) {
  for (int i = 0; i < 4; ++i) {
    for (const std::size_t member : {0, 1})
      Submit(job[member], tensor.registration, job[member].At(0));
  }
}

// Each rank submits in an order of its own.
TEST_CASE("LocalOperations: a rank that waits ends what another one waits for room for") {
  LocalJob job(2);
  const std::uint64_t count = GENERATE(1, 5000);
  Floats often(0, 0, count);
  Floats awaited(1, 1, count);
  FillRoom(job, often);
  const std::uint64_t sequence = Submit(job[1], awaited.registration, job[1].At(1 << 20));
  std::atomic<bool> done{false};
  std::thread waiter(
      [&] { done = job[1].operations->Wait(sequence, InTenSeconds()) == WaitResult::kDone; });
  const OperationEnd end{.registration = &often.registration};
  const Clock::time_point began = Clock::now();
  CHECK(job[0].operations->WaitForRoom(end, began + std::chrono::seconds(5)));
  CHECK(Clock::now() < began + std::chrono::seconds(5));
  Submit(job[0], often.registration, job[0].At(0));
  Submit(job[0], awaited.registration, job[0].At(1 << 20));
  waiter.join();
  CHECK(done);
}

// The one that lacks the room in a tensor is the one that must come for what is waited for.
TEST_CASE("LocalOperations: a rank that waits ends what it did not wait for long before, too") {
  LocalJob job(2);
  const std::uint64_t count = GENERATE(1, 5000);
  Floats often(0, 0, count);
  Floats other(1, 1, 1);
  Floats awaited(2, 2, count);
  FillRoom(job, often);
  float value[2] = {1, 2};
  for (std::uint32_t i = 0; i < 2 * kCapacity; ++i) {
    const std::uint64_t mine = Submit(job[0], other.registration, &value[0]);
    const std::uint64_t its = Submit(job[1], other.registration, &value[1]);
    CHECK(Finish(job[0], mine).status == 0);
    CHECK(Finish(job[1], its).status == 0);
  }
  const std::uint64_t sequence = Submit(job[1], awaited.registration, job[1].At(1 << 20));
  std::atomic<bool> done{false};
  std::thread waiter(
      [&] { done = job[1].operations->Wait(sequence, InTenSeconds()) == WaitResult::kDone; });
  const Clock::time_point began = Clock::now();
  CHECK(job[0].operations->WaitForRoom({.registration = &often.registration},
                                       began + std::chrono::seconds(5)));
  CHECK(Clock::now() < began + std::chrono::seconds(5));
  Submit(job[0], often.registration, job[0].At(0));
  Submit(job[0], awaited.registration, job[0].At(1 << 20));
  waiter.join();
  CHECK(done);
}

TEST_CASE("LocalOperations: as many as have ended are consumed in one go, and no more") {
  LocalJob job(2);
  const std::uint64_t count = GENERATE(1, 5000);
  Floats first(0, 0, count);
  Floats second(1, 1, count);
  std::vector<std::uint64_t> sequences;
  for (Floats* tensor : {&first, &second}) {
    sequences.push_back(Submit(job[0], tensor->registration, job[0].At(0)));
  }
  std::vector<OperationEnd> ends;
  CHECK(job[0].operations->ConsumeSucceeded(sequences, ends) == 0);
  Submit(job[1], first.registration, job[1].At(0));
  REQUIRE(job[0].operations->Wait(sequences[0], InTenSeconds()) == WaitResult::kDone);
  CHECK(job[0].operations->ConsumeSucceeded(sequences, ends) == 1);
  CHECK(job[0].operations->Wait(sequences[0], Clock::now()) == WaitResult::kUnknown);
  Submit(job[1], second.registration, job[1].At(0));
  REQUIRE(job[0].operations->Wait(sequences[1], InTenSeconds()) == WaitResult::kDone);
  CHECK(job[0].operations->ConsumeSucceeded({sequences.data() + 1, 1}, ends) == 1);
  CHECK(job[0].operations->in_flight() == 0);
  CHECK(ends.empty());
}

TEST_CASE("LocalOperations: one whose place is needed again is kept, whatever has become of it") {
  LocalJob job(2);
  const std::uint64_t count = GENERATE(1, 5000);
  Floats done(0, 0, count);
  Floats late(1, 1, count);
  Floats other(2, 2, 1);
  LocalOperations& operations = *job[0].operations;
  const std::uint64_t well = Submit(job[0], done.registration, job[0].At(0));
  Submit(job[1], done.registration, job[1].At(0));
  REQUIRE(operations.Wait(well, InTenSeconds()) == WaitResult::kDone);
  const std::uint64_t awaited = Submit(job[0], late.registration, job[0].At(1 << 16));
  CHECK(operations.consumed() == 0);
  float value[2] = {1, 2};
  for (std::uint32_t i = 0; i < 2 * kCapacity; ++i) {
    const std::uint64_t mine = Submit(job[0], other.registration, &value[0]);
    const std::uint64_t its = Submit(job[1], other.registration, &value[1]);
    CHECK(Finish(job[0], mine).status == 0);
    CHECK(Finish(job[1], its).status == 0);
  }
  CHECK(operations.Test(well) == WaitResult::kDone);
  CHECK(operations.Test(awaited) == WaitResult::kTimeout);
  WaitResult result = WaitResult::kUnknown;
  std::thread waiter([&] { result = operations.Wait(awaited, InTenSeconds()); });
  while (operations.waiters() == 0) std::this_thread::yield();
  Submit(job[1], late.registration, job[1].At(1 << 16));
  waiter.join();
  CHECK(result == WaitResult::kDone);
  std::vector<OperationEnd> ends;
  const std::vector<std::uint64_t> both{well, awaited};
  CHECK(operations.consumed() == 2 * kCapacity);
  CHECK(operations.ConsumeSucceeded(both, ends) == 2);
  CHECK(operations.consumed() == 2 * kCapacity + 2);
  for (const std::uint64_t gone : both) CHECK(operations.Test(gone) == WaitResult::kUnknown);
}

TEST_CASE("LocalOperations: a large submission calls who waits for one, a small one does not") {
  LocalJob job(2);
  LocalOperations& operations = *job[0].operations;
  const bool large = GENERATE(true, false);
  Floats tensor(0, 0, LocalOperations::kBackgroundFromBytes / sizeof(float) - (large ? 0 : 1));
  std::atomic<bool> ended{false};
  auto called = std::async(std::launch::async, [&] {
    return operations.AwaitLargeSubmission(std::chrono::seconds(60), [&] { return ended.load(); });
  });
  // It may not sleep yet, and then hears nothing of the first ones.
  const Clock::time_point deadline = InTenSeconds();
  do {
    const std::uint64_t first = Submit(job[0], tensor.registration, job[0].At(0));
    const std::uint64_t second = Submit(job[1], tensor.registration, job[1].At(0));
    Finish(job[0], first);
    Finish(job[1], second);
    if (!large && called.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout) {
      ended = true;
      operations.WakeBackground();
    }
  } while (called.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout &&
           Clock::now() < deadline);
  CHECK(Clock::now() < deadline);
  // Who ends the wait by WakeBackground calls, too.
  CHECK((called.get() || ended) == true);
  CHECK(ended == !large);
}

TEST_CASE("LocalOperations: when the job fails, waiters end and nothing new is taken") {
  LocalJob job(2);
  Floats tensor(0, 0, 5000);
  const std::uint64_t sequence = Submit(job[0], tensor.registration, job[0].At(0));
  WaitResult result = WaitResult::kTimeout;
  std::thread waiter([&] { result = job[0].operations->Wait(sequence, InTenSeconds()); });
  while (job[0].operations->waiters() == 0) std::this_thread::yield();
  job[0].state.Fail("rank 11 has died");
  job[0].operations->WakeAll();
  waiter.join();
  CHECK(result == WaitResult::kEnded);
  OperationOutcome outcome;
  OperationEnd end;
  CHECK(job[0].operations->Consume(sequence, outcome, end));
  CHECK_FALSE(outcome.completed);
  Submission record{};
  end.registration = &tensor.registration;
  CHECK(job[0].operations->TrySubmit(record, end) == SubmitResult::kEnded);
}

// Another rank has not heard of the job's failure, and brings what is needed for it.
TEST_CASE("LocalOperations: what was given up with the job is not written afterwards") {
  LocalJob job(2);
  Floats small(0, 1, 4);
  std::array<float, 4> first = {1, 1, 1, 1};
  std::array<float, 4> second = {2, 2, 2, 2};
  const std::uint64_t given_up = Submit(job[0], small.registration, first.data());
  const std::uint64_t later = Submit(job[0], small.registration, second.data());
  job[0].state.Fail("another rank has died");
  CHECK(job[0].operations->Wait(given_up, InTenSeconds()) == WaitResult::kEnded);
  OperationOutcome outcome;
  OperationEnd end;
  CHECK(job[0].operations->Consume(given_up, outcome, end));
  CHECK_FALSE(outcome.completed);
  first = {};
  std::array<float, 4> theirs = {10, 10, 10, 10};
  Submit(job[1], small.registration, theirs.data());
  static_cast<void>(job[0].operations->Wait(later, InTenSeconds()));
  CHECK(first == std::array<float, 4>{});
  CHECK(job[0].operations->in_flight() <= 1);
}

// Another rank has not heard of the job's failure, and comes later than the failed wait.
TEST_CASE("LocalOperations: after a failed wait no other rank writes into the arena") {
  LocalJob job(2);
  constexpr std::uint64_t kCount = 5000;
  Floats tensor(0, 0, kCount);
  const bool earlier = GENERATE(false, true);  // an occurrence before is in flight, too
  std::fill_n(job[0].At(0), kCount, 1.0F);
  if (earlier) Submit(job[0], tensor.registration, job[0].At(1 << 20));
  const std::uint64_t given_up = Submit(job[0], tensor.registration, job[0].At(0));
  job[0].state.Fail("another rank has died");
  CHECK(job[0].operations->Wait(given_up, InTenSeconds()) == WaitResult::kEnded);
  if (earlier) Submit(job[1], tensor.registration, job[1].At(1 << 20));
  const std::uint64_t theirs = Submit(job[1], tensor.registration, job[1].At(0));
  // More tests than there are chunks and ends.
  for (int i = 0; i < 16; ++i) CHECK(job[1].operations->Test(theirs) == WaitResult::kTimeout);
  CHECK(std::all_of(job[0].At(0), job[0].At(0) + kCount, [](float is) { return is == 1.0F; }));
}

TEST_CASE("LocalOperations: many waits of ranks whose job has failed take as long as one") {
  LocalJob job(3);
  constexpr std::uint64_t kCount = 1000;
  constexpr std::uint32_t kTensors = 20;
  std::vector<std::unique_ptr<Floats>> tensors;
  std::vector<std::uint64_t> sequences[2];
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    tensors.push_back(std::make_unique<Floats>(i, i, kCount));
    for (std::size_t m = 0; m < 2; ++m) {
      sequences[m].push_back(
          Submit(job[m], tensors[i]->registration, job[m].At(i * kCount * sizeof(float))));
    }
  }
  // Or each amid a chunk of the dead one, which nobody ends.
  if (GENERATE(false, true)) {
    for (std::uint32_t i = 0; i < kTensors; ++i) {
      REQUIRE(ChunkClaims(job[2].memory.segment().Tensor(i), 0, 1).Claim(0) == 0);
    }
  }
  const Clock::time_point begin = Clock::now();
  for (std::size_t m = 0; m < 2; ++m) {
    job[m].state.Fail("rank 12 was killed");
    // Each twice: ringd_wait_all does it.
    for (int again = 0; again < 2; ++again) {
      for (const std::uint64_t sequence : sequences[m]) {
        CHECK(job[m].operations->Wait(sequence, InTenSeconds()) == WaitResult::kEnded);
      }
    }
  }
  CHECK(Clock::now() - begin < std::chrono::seconds(2));  // 8 with kQuietDeadline each
}

TEST_CASE("LocalOperations: with a full table the helper ends what it can behind the oldest") {
  LocalJob job(2);
  std::vector<std::unique_ptr<Floats>> tensors;
  std::vector<float> here(kCapacity, 1);
  std::vector<float> there(kCapacity, 2);
  for (std::uint32_t i = 0; i < kCapacity; ++i) {
    tensors.push_back(std::make_unique<Floats>(i, i, 1));
    Submit(job[0], tensors[i]->registration, &here[i]);
    if (i > 0) Submit(job[1], tensors[i]->registration, &there[i]);
  }
  REQUIRE(job[0].operations->in_flight() == kCapacity);
  std::uint64_t oldest = 0;
  CHECK(job[0].operations->WorkInBackground(oldest));
  CHECK(job[0].operations->in_flight() < kCapacity);
}

// A thread that touches memory that is closed is held there until the test opens it again.
std::atomic<bool> held{false};
std::atomic<bool> open_again{false};

void Hold(int) {
  held = true;
  while (!open_again) ::sched_yield();
}

TEST_CASE("LocalOperations: nothing ends under a thread that reduces it, whatever others write") {
  const bool as_finished = GENERATE(true, false);
  LocalJob job(2);
  constexpr std::uint64_t kCount = 1000;  // one chunk, and more than kAtOnceBytes
  constexpr std::size_t kPage = 4096;
  Floats tensor(0, 0, kCount);
  for (std::size_t m = 0; m < 2; ++m) std::fill_n(job[m].At(0), kCount, 1.0F);
  const std::uint64_t sequence = Submit(job[0], tensor.registration, job[0].At(0));
  held = false;
  open_again = false;
  struct sigaction hold = {};
  struct sigaction before = {};
  hold.sa_handler = &Hold;
  REQUIRE(::sigaction(SIGSEGV, &hold, &before) == 0);
  REQUIRE(::mprotect(job[0].arena, kPage, PROT_NONE) == 0);
  Submit(job[1], tensor.registration, job[1].At(0));
  std::thread worker([&] { static_cast<void>(job[0].operations->Test(sequence)); });
  while (!held) std::this_thread::yield();
  // What a hostile member can do.
  SharedTensor& shared = job[1].memory.segment().Tensor(0);
  SubmissionSlot& slot = job[1].memory.segment().Slot(0, 1, 0);
  if (as_finished) {
    shared.finished = 1;
  } else {
    slot.meta_id = 77;
  }
  const WaitResult result = job[0].operations->Test(sequence);
  slot.meta_id = 0;
  const bool opened = ::mprotect(job[0].arena, kPage, PROT_READ | PROT_WRITE) == 0;
  open_again = true;
  worker.join();
  ::sigaction(SIGSEGV, &before, nullptr);
  CHECK(opened);
  CHECK(result == WaitResult::kTimeout);
  const OperationOutcome outcome = Finish(job[0], sequence);
  CHECK(outcome.status == 0);
  CHECK(outcome.conflicting_metas.empty());
  CHECK(job[0].At(0)[kCount - 1] == 2.0F);
}

}  // namespace
}  // namespace ringd::client
