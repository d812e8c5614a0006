#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "daemon/schedule/coordinator/coordinator.h"
#include "tests/daemon/schedule/coordinator/two_nodes.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

KeptTensor Kept(const std::string& name, milliseconds ready, std::int64_t floats = 8) {
  return {name, Floats(floats), ready, false};
}

CoordinatorConfig With(std::vector<KeptPlan> plans) {
  CoordinatorConfig config = Two::Config(100);
  for (KeptPlan& plan : plans) {
    config.kept_plans.push_back(std::make_shared<const KeptPlan>(std::move(plan)));
  }
  return config;
}

// One negotiated step, and the announcement that begins the next.
std::vector<CoordinatorMessage> OneStep(Two& two, const std::vector<std::string>& names) {
  two.AnnounceAll(names);
  two.Flush();
  two.Announce(0, names[0]);
  return two.Flush();
}

}  // namespace

TEST_CASE("Coordinator: a kept plan is in force after one step that confirms it") {
  KeptPlan kept;
  kept.buckets = {{Kept("a", milliseconds(1)), Kept("c", milliseconds(7))},
                  {Kept("b", milliseconds(9))}};
  Two two(With({kept}));
  const auto messages = OneStep(two, {"a", "b", "c"});
  REQUIRE(messages.size() == 1);
  const Schedule& schedule = std::get<Schedule>(messages[0]);
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a", "c"});
  CHECK(schedule.buckets[0].expected_fill == milliseconds(6));
  CHECK(Names(schedule.buckets[1]) == std::vector<std::string>{"b"});
  CHECK(two.coordinator.Status().origin == PlanOrigin::kKept);
  CHECK(two.coordinator.Status().first_origin == PlanOrigin::kKept);
  // What it then knows is what it was given.
  CHECK(two.coordinator.Learned().buckets == kept.buckets);
}

TEST_CASE("Coordinator: a kept plan whose tensors differ or stay away is not used") {
  KeptPlan kept;
  kept.buckets = {{Kept("a", milliseconds(1)), Kept("b", milliseconds(2), 9)}};
  if (GENERATE(true, false))
    kept.buckets = {{Kept("a", milliseconds(1)), Kept("x", milliseconds(2))}};
  Two two(With({kept}));
  const auto messages = OneStep(two, {"a", "b"});
  CHECK(messages.empty());
  for (const char* name : {"a", "b"}) {
    for (int node = 0; node < 2; ++node) {
      if (node + name[0] != 'a') two.Announce(node, name);
    }
  }
  two.Flush();
  two.Announce(1, "a");
  CHECK(two.FlushOne<Schedule>().buckets.size() == 1);
  CHECK(two.coordinator.Status().origin == PlanOrigin::kLearned);
}

TEST_CASE("Coordinator: buckets that come in other steps are confirmed there") {
  KeptPlan kept;
  kept.buckets = {{Kept("loss", milliseconds(0))},
                  {Kept("a", milliseconds(1)), Kept("b", milliseconds(2))}};
  Two two(With({kept}));
  auto messages = OneStep(two, {"loss"});
  REQUIRE(messages.size() == 1);
  two.epoch = std::get<Schedule>(messages[0]).epoch;
  messages = OneStep(two, {"a", "b"});
  REQUIRE(messages.size() == 1);
  REQUIRE(std::get<Schedule>(messages[0]).buckets.size() == 1);
  CHECK(Names(std::get<Schedule>(messages[0]).buckets[0]) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("Coordinator: a job that is like no kept plan for long gives them up") {
  KeptPlan kept;
  kept.buckets = {{Kept("a", milliseconds(1)), Kept("b", milliseconds(2))}};
  const int periods = GENERATE(63, 64);
  Two two(With({kept}));
  for (int period = 0; period <= periods; ++period) {
    for (int node = 0; node < 2; ++node) two.Announce(node, "sparse", Floats(8 + period));
    CHECK(two.Flush().size() == 1);
  }
  two.AnnounceAll({"a", "b"});
  two.Flush();
  two.Announce(0, "a");
  CHECK(two.Flush().size() == (periods < 64 ? 1 : 0));
}

TEST_CASE("Coordinator: of several kept plans the one that fits is taken") {
  KeptPlan other;
  other.buckets = {{Kept("a", milliseconds(1))}, {Kept("z", milliseconds(1))}};
  KeptPlan right;
  right.buckets = {{Kept("a", milliseconds(1)), Kept("b", milliseconds(2))}};
  Two two(With({other, right}));
  const auto messages = OneStep(two, {"a", "b"});
  REQUIRE(messages.size() == 1);
  CHECK(std::get<Schedule>(messages[0]).buckets.size() == 1);
}

TEST_CASE("Coordinator: a kept bucket of tensors that do not fit together is planned anew") {
  KeptPlan kept;
  KeptTensor wide = Kept("b", milliseconds(2));
  wide.meta.dtype = DataType::kFloat64;
  kept.buckets = {{Kept("a", milliseconds(1)), wide, Kept("a", milliseconds(1))}};
  Two two(With({kept}));
  two.AnnounceAll({"a"});
  for (int node = 0; node < 2; ++node) two.Announce(node, "b", wide.meta);
  two.Flush();
  two.Announce(0, "a");
  const Schedule schedule = two.FlushOne<Schedule>();
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(schedule.buckets[0].tensors.size() == 1);
  CHECK(schedule.buckets[1].tensors.size() == 1);
}

TEST_CASE("Coordinator: plans anew only for a gain, and not while buckets go out of service") {
  Two two(Two::Config(100), std::make_unique<CostModelPlanner>(std::size_t{64} << 20));
  LinkModel fast;
  fast.bytes_per_second = 1e12;
  two.coordinator.SetLinkModel(fast);
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  for (int step = 0; step < 2; ++step) {
    for (const std::string& name : names) {
      for (int node = 0; node < 2; ++node) two.Announce(node, name, Floats(1 << 18));
    }
    two.Flush();
  }
  two.Announce(0, "a", Floats(1 << 18));
  REQUIRE(two.FlushOne<Schedule>().buckets.size() == 1);
  CHECK_FALSE(two.coordinator.ReplanIfBetter({}));

  LinkModel slow = fast;
  slow.bytes_per_second = 1e8;
  two.coordinator.SetLinkModel(slow);
  two.coordinator.SetReadiness(
      {{"b", milliseconds(10)}, {"c", milliseconds(20)}, {"d", milliseconds(30)}});
  CHECK_FALSE(two.coordinator.ReplanIfBetter({0.9, nanoseconds(0), nanoseconds::max()}));
  CHECK(two.coordinator.ReplanIfBetter({}));
  CHECK_FALSE(two.coordinator.ReplanIfBetter({}));
  CHECK(two.FlushOne<Freeze>().channel == 1);
}

// A job that has begun with one bucket of two tensors, the second of which comes `later`.
struct OneBucket {
  OneBucket(milliseconds later, double bytes_per_second)
      : two(With({{.buckets = {{Kept("first", milliseconds(0)), Kept("last", later)}}}}),
            std::make_unique<CostModelPlanner>(std::size_t{64} << 20)) {
    LinkModel link;
    link.bytes_per_second = bytes_per_second;
    two.coordinator.SetLinkModel(link);
    const auto messages = OneStep(two, {"first", "last"});
    REQUIRE(messages.size() == 1);
    REQUIRE(std::get<Schedule>(messages[0]).buckets.size() == 1);
    const PlanComparison plan = two.coordinator.Status().plan;
    step = plan.learned;
    exposed = plan.learned - plan.compute;
    gain = plan.learned - plan.per_tensor;
  }

  Two two;
  nanoseconds step{0};
  nanoseconds exposed{0};  // what the step takes after its last tensor
  nanoseconds gain{0};     // of two buckets
};

TEST_CASE("Coordinator: what counts is the time after the last tensor, not the whole step") {
  // Both tensors in one bucket, of which all that matters could be sent during the second of
  // computing.
  OneBucket job(milliseconds(1000), 1e5);
  REQUIRE(job.gain < job.step / 100);
  REQUIRE(job.gain > job.exposed / 4);
  SECTION("though little of the step it is worth the change") {
    CHECK(job.two.coordinator.ReplanIfBetter({0.05, job.gain}));
  }
  SECTION("but not if it is too little to be seen") {
    CHECK_FALSE(job.two.coordinator.ReplanIfBetter({0.05, job.gain + nanoseconds(1)}));
  }
  SECTION("nor if most of what is exposed stays") {
    CHECK_FALSE(job.two.coordinator.ReplanIfBetter({0.9, nanoseconds(0), nanoseconds::max()}));
  }
}

TEST_CASE("Coordinator: some milliseconds are worth a new plan, however long the line is busy") {
  // A bucket that waits for 20 ms, and then travels for seconds.
  OneBucket job(milliseconds(20), 10);
  REQUIRE(job.exposed > std::chrono::seconds(1));
  REQUIRE(job.gain < job.exposed / 50);
  CHECK_FALSE(job.two.coordinator.ReplanIfBetter({0.05, nanoseconds(0), 2 * job.gain}));
  CHECK(job.two.coordinator.ReplanIfBetter({}));
}

TEST_CASE("Coordinator: plans anew for half as many buckets, too, if that costs no time") {
  // Eight tensors in eight buckets; all together are hardly longer than the last.
  KeptPlan kept;
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) {
    names.push_back("w" + std::to_string(i));
    kept.buckets.push_back({Kept(names.back(), milliseconds(i < 7 ? 0 : 900))});
  }
  Two two(With({kept}), std::make_unique<CostModelPlanner>(std::size_t{64} << 20));
  const auto messages = OneStep(two, names);
  REQUIRE(messages.size() == 1);
  REQUIRE(std::get<Schedule>(messages[0]).buckets.size() == 8);
  REQUIRE(two.coordinator.ReplanIfBetter({}));
  for (const CoordinatorMessage& message : two.Flush()) {
    for (int node = 0; node < 2; ++node) {
      two.Expect(node, Frozen{std::get<Freeze>(message).channel, 3});
    }
  }
  CHECK(std::get<Schedule>(two.Flush().back()).buckets.size() == 1);
  CHECK_FALSE(two.coordinator.ReplanIfBetter({}));
}

TEST_CASE(
    "Coordinator: a plan cut in two by a step's middle is joined later, and not tried for ever") {
  Two two(Two::Config(100), std::make_unique<CostModelPlanner>(std::size_t{64} << 20));
  LinkModel link;
  link.latency = milliseconds(5);
  link.bytes_per_second = 1e12;
  two.coordinator.SetLinkModel(link);
  Schedule schedule = two.Learn({"a", "b", "c"});
  REQUIRE(schedule.buckets.size() == 1);
  // Bring about two buckets, one of which has been executed once more than the other.
  two.Expect(0, Break{1, BreakReason::kLate, 0, {"c"}});
  two.Flush();
  for (int node = 0; node < 2; ++node) two.Expect(node, Frozen{1, 0});
  REQUIRE(two.Flush().size() == 2);
  CHECK_FALSE(two.coordinator.ReplanIfBetter({}));  // the separation still stands
  two.coordinator.Replan();
  two.Flush();
  // The freeze comes while a and b have had their turn in a step, and c has not.
  for (int node = 0; node < 2; ++node) {
    two.Expect(node, Frozen{2, 6});
    two.Expect(node, Frozen{3, 5});
  }
  CHECK(std::get<Schedule>(two.Flush().back()).buckets.size() == 2);
  SECTION("between two steps they are joined") {
    REQUIRE(two.coordinator.ReplanIfBetter({}));
    REQUIRE(two.Flush().size() == 2);
    for (int node = 0; node < 2; ++node) {
      two.Expect(node, Frozen{4, 5});
      two.Expect(node, Frozen{5, 6});
    }
    CHECK(std::get<Schedule>(two.Flush().back()).buckets.size() == 1);
    CHECK_FALSE(two.coordinator.ReplanIfBetter({}));
  }
  SECTION("if it always comes in the middle there is an end to trying") {
    int attempts = 0;
    for (std::uint32_t first = 4; two.coordinator.ReplanIfBetter({}); first += 2) {
      REQUIRE(++attempts < 10);
      REQUIRE(two.Flush().size() == 2);
      for (int node = 0; node < 2; ++node) {
        for (std::uint32_t i = 0; i < 2; ++i) two.Expect(node, Frozen{first + i, 5});
      }
      REQUIRE(two.Flush().size() == 3);
    }
    CHECK(attempts == 3);
  }
}

}  // namespace ringd
