// Operations that are waited for next: two FakeRingds are the nodes of one job, and its ranks speak
// with each other. What goes to a FakeRingd after all is doubled by it, as two equal ranks' sum is.
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.h"
#include "client/ringd.hpp"
#include "proto/rank_exchange/rank_exchange.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/rank_exchange_links.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

FakeRingdSettings SettingsFor(RankExchangeLinks::Node& node) {
  FakeRingdSettings settings;
  settings.arena_bytes = 1 << 20;
  settings.rank_exchange = &node;
  return settings;
}

ringd_options OptionsOf(const FakeRingd& ringd, std::int32_t rank) {
  ringd_options options = OptionsFor(ringd);
  options.rank = rank;
  options.size = 2;
  options.rendezvous = "nobody-asks:1";
  return options;
}

// Two nodes with one rank each.
struct Nodes {
  Nodes() {
    for (int node = 0; node < 2; ++node)
      drivers[node].emplace(links[static_cast<std::size_t>(node)]);
  }

  RankExchangeLinks links{2, 1, 1024};
  std::optional<DrivingRingd> drivers[2];
  FakeRingd ringds[2] = {FakeRingd(SettingsFor(links[0])), FakeRingd(SettingsFor(links[1]))};
  TestContext contexts[2] = {TestContext(OptionsOf(ringds[0], 0)),
                             TestContext(OptionsOf(ringds[1], 1))};

  // A sum of `count` float32.
  ringd_registration Register(const char* name, std::int64_t count) {
    const ringd_registration first = contexts[0].RegisterFloats(name, count);
    REQUIRE(contexts[1].RegisterFloats(name, count) == first);
    return first;
  }
};

struct Outcome {
  ringd_status submitted = RINGD_INTERNAL;
  ringd_operation operation = 0;
  ringd_status waited = RINGD_INTERNAL;
};

Outcome SubmitAndWait(ringd_context* context, ringd_registration registration, float* data) {
  Outcome outcome;
  outcome.submitted = ringd_submit_awaited(context, registration, data, data, &outcome.operation);
  if (outcome.submitted != RINGD_OK) return outcome;
  outcome.waited = ringd_wait(context, outcome.operation, kPatienceMs);
  return outcome;
}

// Both ranks submit and wait at once. Again, if a busy machine has kept one of them away for too
// long; but not three times, after which they would not try.
void Meet(Nodes& nodes, ringd_registration registration, float (&data)[2], Outcome (&outcomes)[2]) {
  const float sources[2] = {data[0], data[1]};
  for (int tries = 0; tries < 2; ++tries) {
    std::barrier begin(2);
    const auto run = [&](int rank) {
      data[rank] = sources[rank];
      begin.arrive_and_wait();
      outcomes[rank] = SubmitAndWait(nodes.contexts[rank], registration, &data[rank]);
    };
    std::thread peer([&] { run(1); });
    run(0);
    peer.join();
    if (outcomes[0].operation == RINGD_DONE || outcomes[1].operation == RINGD_DONE) return;
  }
}

TEST_CASE("Awaited operation: the ranks of two nodes add without their ringds") {
  Nodes nodes;
  const ringd_registration registration = nodes.Register("small", 1);
  float data[2] = {1, 10};
  Outcome outcomes[2];
  Meet(nodes, registration, data, outcomes);
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.submitted == RINGD_OK);
    CHECK(outcome.operation == RINGD_DONE);
    CHECK(outcome.waited == RINGD_OK);
  }
  CHECK(data[0] == 11);
  CHECK(data[1] == 11);
  // Each try in the rank exchange leaves nothing behind at ringd but what was given up, which both
  // ranks submit.
  CHECK(nodes.ringds[0].submissions().size() == nodes.ringds[1].submissions().size());
  std::int32_t done = 0;
  CHECK(ringd_test(nodes.contexts[0], RINGD_DONE, &done) == RINGD_OK);
  CHECK(done == 1);
  CHECK(ringd_wait(nodes.contexts[0], RINGD_DONE, 0) == RINGD_OK);
}

// Somebody who has been stopped holds the driver's role of rank 0's node while it lives.
class StoppedDriver {
 public:
  explicit StoppedDriver(Nodes& nodes) : nodes_(nodes) {
    nodes_.drivers[0].reset();
    Driver() = kHolder;
  }
  ~StoppedDriver() {
    Driver() = kRankExchangeNobody;
    nodes_.drivers[0].emplace(nodes_.links[0]);
  }
  StoppedDriver(const StoppedDriver&) = delete;
  StoppedDriver& operator=(const StoppedDriver&) = delete;

 private:
  static constexpr std::uint32_t kHolder = 2;
  std::atomic<std::uint32_t>& Driver() { return nodes_.links[0].view.control().driver; }
  Nodes& nodes_;
};

TEST_CASE(
    "Awaited operation: one that outlasts its call is waited for, and looked at, as any other") {
  Nodes nodes;
  const ringd_registration registration = nodes.Register("small", 1);
  const bool other_comes = GENERATE(true, false);
  float data[2] = {1, 10};
  Outcome other;
  ringd_operation operation = 0;
  {
    const StoppedDriver stopped(nodes);
    std::thread peer([&] {
      if (other_comes) other = SubmitAndWait(nodes.contexts[1], registration, &data[1]);
    });
    CHECK(ringd_submit_awaited(nodes.contexts[0], registration, &data[0], &data[0], &operation) ==
          RINGD_OK);
    peer.join();
    CHECK(operation != RINGD_DONE);
    std::int32_t done = 1;
    CHECK(ringd_test(nodes.contexts[0], operation, &done) == RINGD_OK);
    CHECK(done == 0);
    for (const std::int64_t timeout_ms : {0, 50}) {
      CHECK(ringd_wait(nodes.contexts[0], operation, timeout_ms) == RINGD_DEADLINE_EXCEEDED);
      ringd_operation all[] = {RINGD_DONE, operation};
      CHECK(ringd_wait_all(nodes.contexts[0], all, 2, timeout_ms) == RINGD_DEADLINE_EXCEEDED);
      CHECK(all[1] == operation);
    }
    CHECK(data[0] == 1);
  }
  CHECK(Eventually([&] {
    std::int32_t done = 0;
    return ringd_test(nodes.contexts[0], operation, &done) == RINGD_OK && done == 1;
  }));
  // Still not consumed.
  const bool in_a_list = GENERATE(true, false);
  if (in_a_list) {
    ringd_operation all[] = {operation};
    CHECK(ringd_wait_all(nodes.contexts[0], all, 1, kPatienceMs) == RINGD_OK);
    CHECK(all[0] == RINGD_DONE);
  } else {
    CHECK(ringd_wait(nodes.contexts[0], operation, kPatienceMs) == RINGD_OK);
  }
  CHECK(ringd_wait(nodes.contexts[0], operation, 0) == RINGD_NOT_FOUND);
  // What was given up has been doubled by ringd.
  const bool on_rank_exchange = other_comes && other.operation == RINGD_DONE;
  CHECK(data[0] == (on_rank_exchange ? 11 : 2));
}

TEST_CASE("Awaited operation: the job's failure ends one that outlasts its call") {
  Nodes nodes;
  const ringd_registration registration = nodes.Register("small", 1);
  float data = 1;
  ringd_operation operation = 0;
  const StoppedDriver stopped(nodes);
  REQUIRE(ringd_submit_awaited(nodes.contexts[0], registration, &data, &data, &operation) ==
          RINGD_OK);
  REQUIRE(operation != RINGD_DONE);
  nodes.ringds[0].SendNotice(NoticeKind::kFailure, "rank 1 has died");
  const bool in_a_list = GENERATE(true, false);
  if (in_a_list) {
    ringd_operation all[] = {operation};
    CHECK(ringd_wait_all(nodes.contexts[0], all, 1, kPatienceMs) == RINGD_ABORTED);
    CHECK(all[0] == 0);
  } else {
    CHECK(ringd_wait(nodes.contexts[0], operation, kPatienceMs) == RINGD_ABORTED);
  }
  CHECK_THAT(ringd_last_error(), Contains("rank 1 has died"));
}

TEST_CASE("Awaited operation: without a rank exchange it is an ordinary submission") {
  FakeRingd ringd;
  TestContext context(ringd);
  float value = 4;
  const Outcome outcome = SubmitAndWait(context, context.RegisterFloats("one node", 1), &value);
  CHECK(outcome.submitted == RINGD_OK);
  CHECK(outcome.operation == 1);
  CHECK(outcome.waited == RINGD_OK);
  CHECK(value == 8);
}

TEST_CASE("Awaited operation: what is too large goes to ringd at once") {
  Nodes nodes;
  std::vector<float> data(257, 3);
  const Outcome outcome =
      SubmitAndWait(nodes.contexts[0], nodes.Register("large", 257), data.data());
  CHECK(outcome.operation != RINGD_DONE);
  CHECK(outcome.waited == RINGD_OK);
  CHECK(data == std::vector<float>(257, 6));
}

TEST_CASE("Awaited operation: ringd gets what the other rank does not come for") {
  Nodes nodes;
  const ringd_registration registration = nodes.Register("alone", 1);
  float data[2] = {4, 5};
  const Outcome own = SubmitAndWait(nodes.contexts[0], registration, &data[0]);
  CHECK(own.submitted == RINGD_OK);
  CHECK(own.operation != RINGD_DONE);
  CHECK(own.waited == RINGD_OK);
  CHECK(data[0] == 8);
  // The other rank's submission of it is an ordinary one; then both are in step.
  CHECK(nodes.contexts[1].Wait(nodes.contexts[1].Submit(registration, &data[1], &data[1])) ==
        RINGD_OK);
  CHECK(data[1] == 10);
  Outcome outcomes[2];
  Meet(nodes, registration, data, outcomes);
  CHECK(outcomes[0].operation == RINGD_DONE);
  CHECK(outcomes[1].operation == RINGD_DONE);
  CHECK(data[0] == 18);
  CHECK(data[1] == 18);
}

TEST_CASE("Awaited operation: refused submissions are not counted") {
  Nodes nodes;
  const ringd_registration registration = nodes.Register("refused", 1);
  float data[2] = {1, 2};
  ringd_operation operation = 0;
  ringd_context* const context = nodes.contexts[0];
  CHECK(ringd_submit_awaited(context, registration, nullptr, &data[0], &operation) ==
        RINGD_INVALID_ARGUMENT);
  CHECK_THAT(ringd_last_error(), Contains("source is NULL"));
  CHECK(ringd_submit_awaited(context, registration, &data[0], &data[0], nullptr) ==
        RINGD_INVALID_ARGUMENT);
  CHECK(ringd_submit_awaited(context, 99, &data[0], &data[0], &operation) == RINGD_NOT_FOUND);
  SECTION("at once") {}
  SECTION("after it has been given up, for want of arena memory") {
    std::vector<void*> blocks;
    for (std::size_t bytes = 1 << 20; bytes >= 64; bytes /= 2) {
      void* block = nullptr;
      while (ringd_arena_alloc(context, bytes, &block) == RINGD_OK) blocks.push_back(block);
    }
    CHECK(ringd_submit_awaited(context, registration, &data[0], &data[0], &operation) ==
          RINGD_RESOURCE_EXHAUSTED);
    for (void* block : blocks) ringd_arena_free(context, block);
    // Its second try goes to ringd, and so does the other's only one.
    CHECK(SubmitAndWait(context, registration, &data[0]).operation != RINGD_DONE);
    CHECK(SubmitAndWait(nodes.contexts[1], registration, &data[1]).operation != RINGD_DONE);
    data[0] = 1;
    data[1] = 2;
  }
  Outcome outcomes[2];
  Meet(nodes, registration, data, outcomes);
  CHECK(outcomes[0].operation == RINGD_DONE);
  CHECK(outcomes[1].operation == RINGD_DONE);
  CHECK(data[0] == 3);
  CHECK(data[1] == 3);
}

TEST_CASE("Awaited operation: the context's end ends the call with its reason") {
  Nodes nodes;
  const ringd_registration registration = nodes.Register("never", 1);
  // So that it can't go to ringd and succeed there.
  nodes.ringds[0].Hold();
  float value = 1;
  std::atomic<ringd_status> status{RINGD_OK};
  std::string words;
  std::atomic<bool> entered{false};
  std::thread caller([&] {
    entered = true;
    const Outcome outcome = SubmitAndWait(nodes.contexts[0], registration, &value);
    status = outcome.submitted == RINGD_OK ? outcome.waited : outcome.submitted;
    words = ringd_last_error();
  });
  REQUIRE(Eventually([&] { return entered.load(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  SECTION("ringd has gone") {
    nodes.ringds[0].Die();
    caller.join();
    CHECK(status == RINGD_UNAVAILABLE);
    CHECK_THAT(words, Contains("has gone"));
  }
  SECTION("the job has failed") {
    nodes.ringds[0].SendNotice(NoticeKind::kFailure, "rank 1 has died");
    caller.join();
    CHECK(status == RINGD_ABORTED);
    CHECK_THAT(words, Contains("rank 1 has died"));
  }
  SECTION("the user leaves") {
    CHECK(ringd_leave(nodes.contexts[0]) == RINGD_OK);
    caller.join();
    CHECK(status == RINGD_CANCELLED);
  }
  CHECK(value == 1);
}

TEST_CASE("Awaited operation: a rank exchange that makes no sense fails the start") {
  RankExchangeLinks links(2);
  reinterpret_cast<RankExchangeHeader*>(links[0].memory.data())->version = 9;
  FakeRingd ringd(SettingsFor(links[0]));
  const ringd_options options = OptionsOf(ringd, 0);
  ringd_context* context = nullptr;
  CHECK(ringd_open(&options, &context) == RINGD_FAILED_PRECONDITION);
  CHECK_THAT(ringd_last_error(), Contains("version 9"));
}

TEST_CASE("Awaited operation: the C++ layer's barrier and sums") {
  RankExchangeLinks links(2);
  FakeRingd ringds[2] = {FakeRingd(SettingsFor(links[0])), FakeRingd(SettingsFor(links[1]))};
  const ringd_options options[2] = {OptionsOf(ringds[0], 0), OptionsOf(ringds[1], 1)};
  Context contexts[2] = {Context(&options[0]), Context(&options[1])};
  bool right[2] = {};
  const auto run = [&](int rank) {
    Context& context = contexts[rank];
    context.Barrier();
    const Registration registration =
        context.Register(AllReduce<float>("mean", {2}, Reduction::kAverage));
    std::vector<float> data = {1, static_cast<float>(rank)};
    Operation operation = context.SubmitAwaited(registration, std::span(data));
    right[rank] = operation.Done();
    operation.Wait();
    right[rank] &= !operation.pending() && data == std::vector<float>{1, 0.5F};
    const std::vector<float> source = data;
    std::vector<float> destination(2);
    context.SubmitAwaited(registration, std::span(source), std::span(destination)).Wait();
    right[rank] &= destination == std::vector<float>{1, 0.5F};
  };
  // Again, if something was given up on a busy machine.
  std::size_t given_up = 0;
  for (int tries = 0; tries < 2; ++tries) {
    std::thread peer([&] { run(1); });
    run(0);
    peer.join();
    if (ringds[0].submissions().size() == given_up) break;
    given_up = ringds[0].submissions().size();
  }
  CHECK(right[0]);
  CHECK(right[1]);
}

}  // namespace
}  // namespace ringd
