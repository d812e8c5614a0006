#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

const LinkId kA(1);
const LinkId kB(2);

// Two nodes of one rank each.
constexpr LinkId kC(77);

struct World {
  explicit World(JobCoordinator::Options options = OptionsOf(2))
      : coordinator(std::move(options), &nodes, now) {}

  void Start(int node_count = 2) {
    const std::vector<std::pair<LinkId, std::string>> named = {
        {kA, "node-a"}, {kB, "node-b"}, {kC, "node-c"}};
    for (int i = 0; i < node_count; ++i) {
      coordinator.AddNode(named[i].first, HelloOf(named[i].second, node_count, 1), now);
    }
    for (int i = 0; i < node_count; ++i) {
      coordinator.OnMessage(named[i].first, RankJoinedOf(i, 0, 100 + i), now);
    }
  }
  void Turn() {
    now += milliseconds(1000);
    coordinator.Advance(now);
  }
  v1::Plan PlanOf(LinkId link) {
    return nodes.Last(link, &v1::CoordinatorMessage::has_plan, &v1::CoordinatorMessage::plan);
  }
  // All nodes announce the tensors; they are `bytes` long.
  void Step(const std::vector<std::string>& names, std::int64_t bytes, std::uint64_t epoch = 0) {
    for (const LinkId link : {kA, kB}) {
      v1::NodeMessage message;
      message.mutable_ready()->set_epoch(epoch);
      for (const std::string& name : names) {
        v1::ReadyTensor* tensor = message.mutable_ready()->add_tensors();
        tensor->set_name(name);
        v1::RankMeta* report = tensor->add_reports();
        report->mutable_meta()->set_data_type(static_cast<std::uint32_t>(DataType::kUint8));
        report->mutable_meta()->add_shape(bytes);
        report->mutable_meta()->set_prescale(1);
        report->mutable_meta()->set_postscale(1);
      }
      coordinator.OnMessage(link, message, now);
    }
    Turn();
  }

  Clock::time_point now = Clock::now();
  RecordedNodes nodes;
  JobCoordinator coordinator;
};

v1::NodeMessage MeasuredOf(std::uint64_t bytes, std::uint64_t time_ns) {
  v1::NodeMessage message;
  v1::LinkObservation* seen = message.mutable_measurements()->add_link();
  seen->set_bytes(bytes);
  seen->set_time_ns(time_ns);
  seen->set_samples(9);
  return message;
}

}  // namespace

TEST_CASE(
    "JobCoordinator: tells all nodes the plan and the link it assumes, then what was measured") {
  World world;
  world.Start();
  world.Turn();
  v1::Plan plan = world.PlanOf(kB);
  CHECK(plan.fusion() == "learned");
  CHECK(plan.origin() == "none");
  CHECK(plan.link().source() == "assumed");
  CHECK(plan.link().latency_us() == Approx(30));
  CHECK(plan.link().gbit_per_second() == Approx(10));

  for (const LinkId link : {kA, kB}) {
    world.coordinator.OnMessage(link, MeasuredOf(64 << 20, 600'000'000), world.now);
  }
  world.Turn();
  plan = world.PlanOf(kB);
  CHECK(plan.link().source() == "measured");
  CHECK(plan.link().samples() == 18);
  CHECK(plan.link().gbit_per_second() == Approx(0.895).epsilon(0.02));
  world.nodes.Clear();
  world.Turn();
  CHECK(world.nodes.To(kA).empty());
}

TEST_CASE("JobCoordinator: nonsense from a node's measuring fails the job and names the node") {
  World world;
  world.Start();
  world.coordinator.OnMessage(kB, MeasuredOf(0, 7), world.now);
  REQUIRE(world.nodes.FailuresOf(kA).size() == 1);
  CHECK_THAT(world.nodes.FailuresOf(kA)[0], Contains("node-b broke the protocol"));
}

TEST_CASE("JobCoordinator: fusion may be pinned by the daemon or by the job") {
  JobCoordinator::Options options = OptionsOf(2);
  options.fusion_threshold_bytes = 1 << 20;
  std::size_t buckets = 1;
  std::string name = "learned";
  SECTION("learned") {}
  SECTION("off") {
    options.fusion = {FusionPolicy::Kind::kOff, 0};
    buckets = 4;
    name = "off";
  }
  SECTION("fixed") {
    options.fusion = {FusionPolicy::Kind::kFixed, 2000};
    buckets = 2;
    name = "2000";
  }
  World world(options);
  world.Start();
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  world.Step(names, 1000);
  world.Step(names, 1000);
  world.Step(names, 1000);
  const v1::Plan plan = world.PlanOf(kA);
  CHECK(plan.fusion() == name);
  CHECK(plan.origin() == "learned");
  REQUIRE(plan.buckets_size() == static_cast<int>(buckets));
  CHECK(plan.buckets(0).bytes() == 4000 / buckets);
  CHECK(plan.buckets(0).first_tensor() == "a");
}

TEST_CASE(
    "JobCoordinator: nodes or the kept link decide which all-reduces are small, unless a user "
    "does") {
  const int node_count = GENERATE(2, 3);
  Membership membership;
  membership.nodes = {{"node-a", "", {MemberRank{}}}, {"node-b", "", {MemberRank{}}}};
  if (node_count == 3) membership.nodes.push_back({"node-c", "", {MemberRank{}}});
  KeptPlan kept;
  kept.link_measured = true;
  kept.latency = std::chrono::microseconds(99);
  kept.bytes_per_second = 1e9;
  PlanStore plans("");
  JobCoordinator::Options options = OptionsOf(node_count);
  options.algorithms.small_all_reduce_bytes = 100;
  options.plans = &plans;
  options.choose_small_all_reduces = true;
  // Between two nodes doubling is never slower.
  std::uint64_t small = node_count == 2 ? options.algorithms.chunk_bytes : 100;
  SECTION("nothing is known yet") {}
  SECTION("another user's jobs are no guide") { plans.Put(NodesKey(7, membership), kept); }
  SECTION("the link is known") {
    plans.Put(NodesKey(0, membership), kept);
    LinkModel link;
    link.node_count = node_count;
    link.latency = kept.latency;
    link.bytes_per_second = kept.bytes_per_second;
    small = SmallBytesOf(link, options.algorithms.chunk_bytes);
    REQUIRE(small > 100);
  }
  SECTION("known, but the user has decided") {
    plans.Put(NodesKey(0, membership), kept);
    options.choose_small_all_reduces = false;
    small = 100;
  }
  const bool known = !plans.Find(NodesKey(0, membership)).empty();
  World world(options);
  world.Start(node_count);
  world.Turn();
  const v1::Membership told = world.nodes.Last(kB, &v1::CoordinatorMessage::has_membership,
                                               &v1::CoordinatorMessage::membership);
  CHECK(told.small_all_reduce_bytes() == small);
  CHECK(world.PlanOf(kB).link().small_all_reduce_bytes() == small);
  CHECK(world.PlanOf(kB).link().source() == (known ? "kept" : "assumed"));
  CHECK(world.PlanOf(kB).link().latency_us() == Approx(known ? 99 : 30));
}

struct CountingKeeper final : PlanKeeper {
  void Keep(KeptState /*changed*/) override { ++kept; }
  void KeepUnmeasured(const std::vector<std::string>& /*names*/, std::int64_t /*at*/) override {}

  int kept = 0;
};

TEST_CASE("JobCoordinator: what was learned is kept once, however many ranks leave") {
  CountingKeeper keeper;
  PlanStore plans({}, &keeper);
  JobCoordinator::Options options = OptionsOf(2);
  options.plans = &plans;
  World world(options);
  world.Start();
  for (int step = 0; step < 3; ++step) world.Step({"a", "b"}, 1000);
  const int before = keeper.kept;
  for (const auto& [link, rank] : {std::pair(kB, 1), std::pair(kA, 0)}) {
    v1::NodeMessage left;
    left.mutable_ranks_left()->add_ranks(rank);
    world.coordinator.OnMessage(link, left, world.now);
  }
  CHECK(keeper.kept == before + 1);
}

TEST_CASE("JobCoordinator: what was learned is kept when the first rank leaves") {
  PlanStore plans("");
  JobCoordinator::Options options = OptionsOf(2);
  options.plans = &plans;
  options.fusion_threshold_bytes = 1 << 20;
  const bool fixed = GENERATE(false, true);
  if (fixed) options.fusion = {FusionPolicy::Kind::kFixed, 1 << 20};
  Membership membership;
  membership.nodes = {{"node-a", "", {MemberRank{}}}, {"node-b", "", {MemberRank{}}}};
  {
    World world(options);
    world.Start();
    for (int step = 0; step < 3; ++step) world.Step({"a", "b"}, 1000);
    v1::NodeMessage left;
    left.mutable_ranks_left()->add_ranks(1);
    world.coordinator.OnMessage(kB, left, world.now);
  }
  const auto kept = plans.Find(NodesKey(0, membership));
  REQUIRE(kept.size() == (fixed ? 0 : 1));
  if (fixed) return;
  CHECK(TensorCount(*kept[0]) == 2);
  CHECK_FALSE(kept[0]->link_measured);

  // The next job needs one step.
  World again(options);
  again.Start();
  again.Step({"a", "b"}, 1000);
  again.Step({"a", "b"}, 1000);
  CHECK(again.PlanOf(kA).origin() == "kept");
}

TEST_CASE("JobCoordinator: the ring passes through the nodes as the user wants") {
  JobCoordinator::Options options = OptionsOf(3);
  options.ring_order = {"elsewhere", "node-b", "node-a"};
  World world(options);
  const LinkId c(3);
  int rank = 0;
  for (const auto& [link, name] :
       {std::pair(kA, "node-a"), std::pair(kB, "node-b"), std::pair(c, "node-c")}) {
    world.coordinator.AddNode(link, HelloOf(name, 3, 1), world.now);
  }
  for (const LinkId link : {kA, kB, c}) {
    world.coordinator.OnMessage(link, RankJoinedOf(rank, 0, 100 + rank), world.now);
    ++rank;
  }
  const v1::Membership told = world.nodes.Last(kB, &v1::CoordinatorMessage::has_membership,
                                               &v1::CoordinatorMessage::membership);
  REQUIRE(told.nodes_size() == 3);
  CHECK(told.nodes(0).node_name() == "node-a");
  CHECK(told.nodes(1).node_name() == "node-c");
  CHECK(told.nodes(2).node_name() == "node-b");
  CHECK(told.node_index() == 2);
}

TEST_CASE("JobCoordinator: nodes whose ranks ask for different fusion hear both") {
  World world;
  world.coordinator.AddNode(kA, HelloOf("node-a", 2, 1), world.now);
  world.coordinator.OnMessage(kA, RankJoinedOf(0, 0, 100), world.now);
  v1::Hello other = HelloOf("node-b", 2, 1);
  other.set_fusion("8KiB");
  world.coordinator.AddNode(kB, other, world.now);
  for (const LinkId link : {kA, kB}) {
    REQUIRE(world.nodes.FailuresOf(link).size() == 1);
    CHECK_THAT(world.nodes.FailuresOf(link)[0], Contains("node-b") && Contains("'8KiB'") &&
                                                    Contains("nothing") &&
                                                    Contains("RINGD_FUSION"));
  }
}

}  // namespace ringd
