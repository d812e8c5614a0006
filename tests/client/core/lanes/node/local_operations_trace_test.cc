// What a rank of a one-node job notes of its operations.
#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#include "client/core/lanes/node/local_operations.h"
#include "proto/shm/ordered_operation.h"
#include "tests/client/core/lanes/node/local_job.h"

namespace ringd::client {
namespace {

std::vector<TraceEvent> OfStage(Member& member, TraceStage stage) {
  std::vector<TraceEvent> events;
  for (const TraceEvent& event : member.Traced()) {
    if (event.stage == stage) events.push_back(event);
  }
  return events;
}

TEST_CASE("LocalOperations: notes on each rank when an occurrence was submitted and completed") {
  LocalJob job(2);
  const std::uint64_t count = GENERATE(9, 5000);
  Floats tensor(3, 0, count);
  for (std::uint32_t occurrence = 0; occurrence < 3; ++occurrence) {
    const std::uint64_t before = MonotonicNanos();
    const std::uint64_t first = Submit(job[0], tensor.registration, job[0].At(0));
    const std::uint64_t second = Submit(job[1], tensor.registration, job[1].At(0));
    CHECK(Finish(job[0], first).status == 0);
    CHECK(Finish(job[1], second).status == 0);
    const std::uint64_t after = MonotonicNanos();
    std::uint64_t last_submitted = 0;
    for (std::size_t m = 0; m < 2; ++m) {
      const auto submitted = OfStage(job[m], TraceStage::kSubmitted);
      REQUIRE(submitted.size() == occurrence + 1);
      CHECK(submitted.back().sequence == occurrence);
      CHECK(submitted.back().tensor == 3);
      CHECK(submitted.back().value == count * sizeof(float));
      CHECK(submitted.back().at_ns >= before);
      last_submitted = std::max(last_submitted, submitted.back().at_ns);
    }
    for (std::size_t m = 0; m < 2; ++m) {
      const auto completed = OfStage(job[m], TraceStage::kCompleted);
      REQUIRE(completed.size() == occurrence + 1);
      CHECK(completed.back().sequence == occurrence);
      CHECK(completed.back().tensor == 3);
      CHECK(completed.back().detail == 0);
      CHECK(completed.back().at_ns >= last_submitted);
      CHECK(completed.back().at_ns <= after);
    }
  }
}

TEST_CASE("LocalOperations: notes of another communicator say so, and go by number if it does") {
  LocalJob job(2, std::chrono::nanoseconds(0), /*start=*/false);
  for (auto& member : job.members) {
    member->part = TracedPart(7);
    member->by_order = true;
    member->Start(DirectReading::kIfAllowed);
  }
  Floats tensor(3, 0, 9);  // as if it was place 3
  for (std::uint32_t occurrence = 0; occurrence < 2; ++occurrence) {
    const std::uint64_t first = Submit(job[0], tensor.registration, job[0].At(0));
    const std::uint64_t second = Submit(job[1], tensor.registration, job[1].At(0));
    CHECK(Finish(job[0], first).status == 0);
    CHECK(Finish(job[1], second).status == 0);
    const auto completed = OfStage(job[0], TraceStage::kCompleted);
    REQUIRE(completed.size() == occurrence + 1);
    CHECK(TracedPart::OfWord(completed.back().channel) == TracedPart(7));
    CHECK(completed.back().tensor == TracedOrdered(kOrderedPlaces * occurrence + 3));
  }
}

TEST_CASE("LocalOperations: notes an operation's error with its end") {
  LocalJob job(2);
  Floats mine(0, 0, 9);
  Floats other(0, 1, 9);
  const std::uint64_t first = Submit(job[0], mine.registration, job[0].At(0));
  Submit(job[1], other.registration, job[1].At(0));
  CHECK(Finish(job[0], first).status != 0);
  const auto completed = OfStage(job[0], TraceStage::kCompleted);
  REQUIRE(completed.size() == 1);
  CHECK(completed[0].detail == static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("LocalOperations: notes a wait that lasts, and the chunks that are worth it") {
  LocalJob job(2);
  Floats tensor(0, 0, 1 << 18);  // 1 MiB
  const std::uint64_t sequence = Submit(job[0], tensor.registration, job[0].At(0));
  const auto patience = std::chrono::milliseconds(3);
  CHECK(job[0].operations->Wait(sequence, Clock::now() + patience) == WaitResult::kTimeout);
  const auto waits = OfStage(job[0], TraceStage::kWaited);
  REQUIRE(waits.size() == 1);
  CHECK(waits[0].value >= 2'000'000);
  CHECK(waits[0].tensor == 0);
  const std::uint64_t its = Submit(job[1], tensor.registration, job[1].At(0));
  CHECK(Finish(job[0], sequence).status == 0);
  CHECK(Finish(job[1], its).status == 0);
  const auto reduced = OfStage(job[0], TraceStage::kReduced);
  REQUIRE_FALSE(reduced.empty());
  const auto completed = OfStage(job[0], TraceStage::kCompleted);
  for (const TraceEvent& chunk : reduced) CHECK(chunk.at_ns <= completed.at(0).at_ns);
}

TEST_CASE("LocalOperations: what travels in its slot is not noted, since that would slow it down") {
  LocalJob job(2);
  Floats tensor(0, 0, 8);
  const std::uint64_t first = Submit(job[0], tensor.registration, job[0].At(0));
  const std::uint64_t second = Submit(job[1], tensor.registration, job[1].At(0));
  CHECK(Finish(job[1], second).status == 0);
  CHECK(Finish(job[0], first).status == 0);
  CHECK(OfStage(job[0], TraceStage::kSubmitted).empty());
  CHECK(OfStage(job[0], TraceStage::kCompleted).empty());
}

TEST_CASE("LocalOperations: what is there at once is waited for without a note") {
  LocalJob job(2);
  Floats tensor(0, 0, 1);
  const std::uint64_t first = Submit(job[0], tensor.registration, job[0].At(0));
  const std::uint64_t second = Submit(job[1], tensor.registration, job[1].At(0));
  CHECK(Finish(job[1], second).status == 0);
  CHECK(Finish(job[0], first).status == 0);
  CHECK(OfStage(job[0], TraceStage::kWaited).empty());
}

}  // namespace
}  // namespace ringd::client
