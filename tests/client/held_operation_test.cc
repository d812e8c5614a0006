// The last small tensors of a step, through the C interface: what a caller sees of numbers that ringd does not know yet.
// What goes to a FakeRingd after all is doubled by it.
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "client/ringd.h"
#include "tests/client/fake_ringd.h"
#include "tests/client/fast_path_links.h"
#include "tests/client/test_context.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

constexpr std::int64_t kLargeCount = 1 << 18;
constexpr int kAlike = 3;
using Step = std::vector<ringd_operation>;

// A rank of two nodes' job, whose steps are a tensor of a MiB and two of one float.
struct StepRank {
  StepRank(FastPathLinks& links, std::uint32_t node)
      : ringd(SettingsFor(links[node])), context(OptionsOf(ringd, node)) {
    registrations = {context.RegisterFloats("large", kLargeCount), context.RegisterFloats("a", 1),
                     context.RegisterFloats("b", 1)};
  }
  static FakeRingdSettings SettingsFor(FastPathLinks::Node& node) {
    FakeRingdSettings settings;
    settings.fast_path = &node;
    return settings;
  }
  static ringd_options OptionsOf(const FakeRingd& ringd, std::uint32_t rank) {
    ringd_options options = OptionsFor(ringd);
    options.rank = static_cast<std::int32_t>(rank);
    options.size = 2;
    options.rendezvous = "nobody-asks:1";
    return options;
  }

  Step Submit() {
    return {context.Submit(registrations[0], large.data(), large.data()),
            context.Submit(registrations[1], &small[0], &small[0]),
            context.Submit(registrations[2], &small[1], &small[1])};
  }
  ringd_status WaitAll(Step& step, std::int64_t timeout_ms = kPatienceMs) {
    return ringd_wait_all(context, step.data(), step.size(), timeout_ms);
  }
  // The next step's last two are held.
  void Learn() {
    for (int i = 0; i < kAlike; ++i) {
      Step step = Submit();
      REQUIRE(WaitAll(step) == RINGD_OK);
    }
    small = {3, 4};
    seen = ringd.submissions().size();
  }
  // How many have come to ringd since, besides the large one.
  std::size_t Came() const { return ringd.submissions().size() - seen - 1; }

  FakeRingd ringd;
  TestContext context;
  std::array<ringd_registration, 3> registrations{};
  std::vector<float> large = std::vector<float>(kLargeCount);
  std::array<float, 2> small{};
  std::size_t seen = 0;
};

// A rank to whom nobody else comes: the other node's ringd looks on and gives it up.
struct Alone {
  Alone() { rank.Learn(); }
  // Whatever happened, both small ones have been doubled by ringd.
  void CheckDoubled() {
    CHECK(rank.small == std::array<float, 2>{6, 8});
    CHECK(rank.Came() == 2);
  }

  FastPathLinks links{2, 1, 1024};
  DrivingRingd driver{links[1]};
  StepRank rank{links, 0};
};

TEST_CASE("Held operation: waiting for each in turn") {
  Alone alone;
  const Step step = alone.rank.Submit();
  for (const ringd_operation operation : step)
    CHECK(alone.rank.context.Wait(operation) == RINGD_OK);
  alone.CheckDoubled();
  // Each once.
  for (const ringd_operation operation : step) {
    CHECK(alone.rank.context.Wait(operation) == RINGD_NOT_FOUND);
    CHECK_THAT(ringd_last_error(), Contains("operation " + std::to_string(operation)));
  }
}

TEST_CASE("Held operation: the last is waited for first") {
  Alone alone;
  const Step step = alone.rank.Submit();
  for (std::size_t i = 3; i-- > 0;) CHECK(alone.rank.context.Wait(step[i]) == RINGD_OK);
  alone.CheckDoubled();
}

TEST_CASE("Held operation: waiting for all") {
  Alone alone;
  Step step = alone.rank.Submit();
  CHECK(alone.rank.WaitAll(step) == RINGD_OK);
  CHECK(step == Step(3, RINGD_DONE));
  alone.CheckDoubled();
}

TEST_CASE("Held operation: a look at it submits it, and does not consume it") {
  Alone alone;
  const Step step = alone.rank.Submit();
  const std::size_t which = GENERATE(0U, 1U, 2U);
  CHECK(Eventually([&] {
    std::int32_t done = 0;
    return ringd_test(alone.rank.context, step[which], &done) == RINGD_OK && done == 1;
  }));
  CHECK(Eventually([&] { return alone.rank.Came() == 2; }));
  for (const ringd_operation operation : step)
    CHECK(alone.rank.context.Wait(operation) == RINGD_OK);
  alone.CheckDoubled();
  std::int32_t done = 0;
  CHECK(ringd_test(alone.rank.context, step[1], &done) == RINGD_NOT_FOUND);
}

TEST_CASE("Held operation: when a wait's time is up nothing is lost") {
  Alone alone;
  alone.rank.ringd.Hold();
  Step step = alone.rank.Submit();
  const std::int64_t timeout_ms = GENERATE(0, 20, 150);
  SECTION("of all") {
    CHECK(alone.rank.WaitAll(step, timeout_ms) == RINGD_DEADLINE_EXCEEDED);
    alone.rank.ringd.Release();
    CHECK(alone.rank.WaitAll(step) == RINGD_OK);
  }
  SECTION("of one") {
    CHECK(ringd_wait(alone.rank.context, step[2], timeout_ms) == RINGD_DEADLINE_EXCEEDED);
    alone.rank.ringd.Release();
    for (const ringd_operation operation : step) {
      CHECK(alone.rank.context.Wait(operation) == RINGD_OK);
    }
  }
  alone.CheckDoubled();
}

TEST_CASE("Held operation: submitted when ringd says so") {
  Alone alone;
  Step step = alone.rank.Submit();
  CHECK(alone.links[0].view.Member(0).held_since_ns > 0);
  alone.rank.ringd.SendNotice(NoticeKind::kReleaseHeld, "");
  CHECK(Eventually([&] { return alone.rank.Came() == 2; }));
  CHECK(Eventually([&] { return alone.links[0].view.Member(0).held_since_ns == 0; }));
  CHECK(alone.rank.WaitAll(step) == RINGD_OK);
  alone.CheckDoubled();
}

TEST_CASE("Held operation: how it failed") {
  Alone alone;
  alone.rank.ringd.FailOperations(absl::AbortedError("rank 1 has died"));
  Step step = alone.rank.Submit();
  SECTION("of each") {
    for (const ringd_operation operation : step) {
      CHECK(alone.rank.context.Wait(operation) == RINGD_ABORTED);
      CHECK_THAT(ringd_last_error(), Contains("rank 1 has died"));
    }
  }
  SECTION("of all") {
    CHECK(alone.rank.WaitAll(step) == RINGD_ABORTED);
    CHECK_THAT(ringd_last_error(), Contains("rank 1 has died"));
    CHECK(step == Step(3, 0));
  }
}

TEST_CASE("Held operation: two ranks' are added without their ringds") {
  FastPathLinks links(2, 1, 1024);
  StepRank ranks[2] = {StepRank(links, 0), StepRank(links, 1)};
  for (StepRank& rank : ranks) rank.Learn();
  Step steps[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].small = {static_cast<float>(1 + rank), 5};
    steps[rank] = ranks[rank].Submit();
  }
  ringd_status statuses[2];
  std::thread other([&] { statuses[1] = ranks[1].WaitAll(steps[1]); });
  statuses[0] = ranks[0].WaitAll(steps[0]);
  other.join();
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(statuses[rank] == RINGD_OK);
    CHECK(steps[rank] == Step(3, RINGD_DONE));
    // If a busy machine has kept one away, both have been doubled instead.
    if (ranks[rank].Came() == 0) CHECK(ranks[rank].small == std::array<float, 2>{3, 10});
  }
  CHECK(ranks[0].Came() == ranks[1].Came());
}

}  // namespace
}  // namespace ringd
