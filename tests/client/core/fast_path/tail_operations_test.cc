// Submissions held for the wait that follows: threads of the test are the ranks, and what they submit after all is
// only noted down. Runs under ThreadSanitizer too.
#include "client/core/fast_path/tail_operations.h"

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "tests/client/core/fast_path/tail_job.h"

namespace ringd::client {
namespace {

// One rank of two, alone, that holds two tensors of which each step is one float. Rank 1 is not the root.
struct Alone {
  Alone() {
    rank.Add(Reduction("a", DataType::kFloat32, ReduceOp::kSum, 1), &values[0]);
    rank.Add(Reduction("b", DataType::kFloat32, ReduceOp::kSum, 1), &values[1]);
    rank.Learn();
    REQUIRE_FALSE(rank.learned_early());
    REQUIRE(rank.submitted().empty());
  }
  std::vector<ringd_operation> Hold() {
    const std::vector<ringd_operation> tickets = rank.HoldAll();
    REQUIRE(tickets.size() == 2);
    REQUIRE(TailOperations::IsTicket(tickets[0]));
    REQUIRE(TailOperations::IsTicket(tickets[1]));
    REQUIRE(tickets[0] != tickets[1]);
    CHECK(rank.member().held_since_ns > 0);
    CHECK(rank.member().held_since_ns <= MonotonicNanos());
    return tickets;
  }
  // All that was held has gone to ringd, in the order of the calls.
  void CheckSubmitted(WhenFull when_full, bool counted) {
    const std::vector<Submitted> submitted = rank.submitted();
    REQUIRE(submitted.size() == 2);
    CHECK(submitted[0].name == "a");
    CHECK(submitted[1].name == "b");
    for (const Submitted& entry : submitted) {
      CHECK(entry.when_full == when_full);
      CHECK(entry.counted == counted);
    }
    CHECK(rank.member().held_since_ns == 0);
  }

  TailJob job{2, 1, /*with_ringds=*/false};
  std::array<float, 2> values = {1, 2};
  TailRank& rank = job[1];
};

TEST_CASE("TailOperations: numbers of ringd's are no tickets") {
  for (const ringd_operation number : {ringd_operation{0}, ringd_operation{1}, RINGD_DONE}) {
    CHECK_FALSE(TailOperations::IsTicket(number));
  }
}

TEST_CASE("TailOperations: a ticket leads to the end until it is forgotten") {
  TailJob job(2);
  std::array<std::vector<ringd_operation>, 2> tickets;
  std::array<std::array<float, 2>, 2> data = {{{1, 2}, {10, 20}}};
  std::array<int, 2> meanwhile{};
  job.job.OnAll([&](std::size_t r) {
    TailRank& rank = job[r];
    rank.Add(Reduction("a", DataType::kFloat32, ReduceOp::kSum, 1), &data[r][0]);
    rank.Add(Reduction("b", DataType::kFloat32, ReduceOp::kSum, 1), &data[r][1]);
    rank.Learn();
    // Again if a busy machine has kept one away.
    for (int tries = 0; tries < 2 && rank.member().completed == 0; ++tries) {
      data[r] = r == 0 ? std::array<float, 2>{1, 2} : std::array<float, 2>{10, 20};
      tickets[r] = rank.HoldAll();
      rank.operations().BeginWait(true, [&] { ++meanwhile[r]; });
    }
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(job[rank].member().completed == 1);
    CHECK(meanwhile[rank] >= 1);
    CHECK(data[rank] == std::array<float, 2>{11, 22});
    REQUIRE(tickets[rank].size() == 2);
    for (const ringd_operation ticket : tickets[rank]) {
      CHECK(FoundBy(job[rank], ticket) == RINGD_DONE);
      CHECK(FoundBy(job[rank], ticket) == RINGD_DONE);
      job[rank].operations().Forget(ticket);
      CHECK(FoundBy(job[rank], ticket) == 0);
      job[rank].operations().Forget(ticket);
    }
  }
  CHECK(FoundBy(job[0], tickets[0][1] + 1) == 0);
}

TEST_CASE("TailOperations: what the others do not come for is submitted, and has been counted") {
  Alone alone;
  const DrivingRingd root(alone.job.job.links[0]);
  const std::vector<ringd_operation> tickets = alone.Hold();
  const Clock::time_point before = Clock::now();
  alone.rank.Wait();
  CHECK(Clock::now() - before > FastPathExchange::kPatience / 2);
  CHECK(Clock::now() < InTenSeconds());
  alone.CheckSubmitted(WhenFull::kWait, true);
  CHECK(FoundBy(alone.rank, tickets[0]) == 1);
  CHECK(FoundBy(alone.rank, tickets[1]) == 2);
  CHECK(alone.values == std::array<float, 2>{1, 2});
  CHECK(alone.rank.member().given_up == 1);
}

TEST_CASE("TailOperations: what is held is submitted when something else happens") {
  Alone alone;
  const std::vector<ringd_operation> tickets = alone.Hold();
  WhenFull when_full = WhenFull::kWait;
  SECTION("a submission") { CHECK_FALSE(alone.rank.SubmitLarge()); }
  SECTION("a look at an operation") { alone.rank.operations().BeginTest(); }
  SECTION("a look at one that is held") { CHECK(FoundBy(alone.rank, tickets[1]) == 2); }
  SECTION("a wait that has no time for it") {
    bool called = false;
    alone.rank.operations().BeginWait(false, [&] { called = true; });
    CHECK_FALSE(called);
  }
  SECTION("ringd's word that others may wait for it") {
    alone.rank.operations().Release();
    when_full = WhenFull::kFail;
  }
  alone.CheckSubmitted(when_full, false);
  // Once, whatever comes now.
  alone.rank.Wait();
  alone.rank.operations().Release();
  alone.CheckSubmitted(when_full, false);
  CHECK(FoundBy(alone.rank, tickets[0]) == 1);
  CHECK(FoundBy(alone.rank, tickets[1]) == 2);
  CHECK(alone.rank.member().completed == 0);
  CHECK(alone.rank.member().given_up == 0);
}

TEST_CASE("TailOperations: a wait before the tail is whole submits what there is of it") {
  Alone alone;
  CHECK_FALSE(alone.rank.SubmitLarge());
  const ringd_operation ticket = alone.rank.Hold(0);
  REQUIRE(ticket != 0);
  alone.rank.Wait();
  CHECK(alone.rank.submitted_names() == std::vector<std::string>{"a"});
  CHECK(FoundBy(alone.rank, ticket) == 1);
  CHECK(alone.rank.member().held_since_ns == 0);
}

TEST_CASE("TailOperations: Release keeps what ringd has no room for, and is asked again") {
  Alone alone;
  const std::vector<ringd_operation> tickets = alone.Hold();
  alone.rank.RefuseWith(absl::ResourceExhaustedError("full"), 1);
  const std::uint64_t since = alone.rank.member().held_since_ns;
  alone.rank.operations().Release();
  CHECK(alone.rank.submitted_names() == std::vector<std::string>{"a"});
  CHECK(alone.rank.member().held_since_ns >= since);
  alone.rank.operations().Release();
  CHECK(alone.rank.submitted_names() == std::vector<std::string>{"a"});
  CHECK(alone.rank.member().held_since_ns > 0);
  alone.rank.RefuseWith(absl::OkStatus());
  alone.rank.operations().Release();
  alone.CheckSubmitted(WhenFull::kFail, false);
  CHECK(FoundBy(alone.rank, tickets[0]) == 1);
  CHECK(FoundBy(alone.rank, tickets[1]) == 2);
}

TEST_CASE(
    "TailOperations: a wait submits what Release had no room for, in the order of the calls") {
  Alone alone;
  const std::vector<ringd_operation> tickets = alone.Hold();
  alone.rank.RefuseWith(absl::ResourceExhaustedError("full"));
  alone.rank.operations().Release();
  CHECK(alone.rank.submitted().empty());
  CHECK(alone.rank.member().held_since_ns > 0);
  alone.rank.RefuseWith(absl::OkStatus());
  alone.rank.Wait();
  alone.CheckSubmitted(WhenFull::kWait, false);
  CHECK(FoundBy(alone.rank, tickets[1]) == 2);
}

TEST_CASE("TailOperations: how ringd refused a submission is told by its ticket") {
  Alone alone;
  const std::vector<ringd_operation> tickets = alone.Hold();
  alone.rank.RefuseWith(absl::ResourceExhaustedError("the arena is full"), 1);
  SECTION("that was submitted after all") { alone.rank.operations().BeginTest(); }
  SECTION("that was given up") {
    const DrivingRingd root(alone.job.job.links[0]);
    alone.rank.Wait();
  }
  CHECK(FoundBy(alone.rank, tickets[0]) == 1);
  for (int times = 0; times < 2; ++times) {
    const auto found = alone.rank.operations().Find(tickets[1]);
    CHECK(absl::IsResourceExhausted(found.status()));
    CHECK(found.status().message() == "the arena is full");
  }
  alone.rank.operations().Forget(tickets[1]);
  CHECK(FoundBy(alone.rank, tickets[1]) == 0);
  CHECK(alone.rank.member().held_since_ns == 0);
}

TEST_CASE("TailOperations: the context's end ends a wait, and its reason is that of all tickets") {
  Alone alone;
  const std::vector<ringd_operation> tickets = alone.Hold();
  alone.rank.RefuseWith(absl::CancelledError("this context has been closed"));
  std::thread waiter([&] { alone.rank.Wait(); });
  const Clock::time_point deadline = InTenSeconds();
  while (alone.rank.member().registration == 0 && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  alone.rank.state().Close();
  waiter.join();
  CHECK(Clock::now() < deadline);
  for (const ringd_operation ticket : tickets) {
    CHECK(absl::IsCancelled(alone.rank.operations().Find(ticket).status()));
  }
  CHECK(alone.rank.submitted().empty());
  CHECK(alone.values == std::array<float, 2>{1, 2});
}

TEST_CASE("TailOperations: tickets that nobody asks for are forgotten in the end") {
  Alone alone;
  const ringd_operation oldest = alone.Hold()[0];
  alone.rank.operations().BeginWait(false, nullptr);
  std::size_t tickets = 2;
  for (; tickets < 5000 && FoundBy(alone.rank, oldest) != 0; tickets += 2) {
    const std::vector<ringd_operation> next = alone.rank.HoldAll();
    REQUIRE(next[1] != 0);
    alone.rank.operations().BeginWait(false, nullptr);
    alone.rank.Forgive();
  }
  CHECK(tickets > 1000);
  CHECK(tickets < 5000);
}

}  // namespace
}  // namespace ringd::client
