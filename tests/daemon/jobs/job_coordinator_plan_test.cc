#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "daemon/jobs/job_coordinator.h"
#include "tests/daemon/jobs/recorded_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

const LinkId kA(1);
const LinkId kB(2);

// Two nodes of one rank each.
struct World {
  explicit World(JobCoordinator::Options options = OptionsOf(2))
      : coordinator(std::move(options), &nodes, now) {}

  void Start() {
    coordinator.AddNode(kA, HelloOf("node-a", 2, 1), now);
    coordinator.AddNode(kB, HelloOf("node-b", 2, 1), now);
    coordinator.OnMessage(kA, RankJoinedOf(0, 0, 100), now);
    coordinator.OnMessage(kB, RankJoinedOf(1, 0, 101), now);
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

TEST_CASE("JobCoordinator: a threshold that the ranks ask for is the job's policy") {
  JobCoordinator::Options options = OptionsOf(2);
  options.fusion = {FusionPolicy::Kind::kOff, 0};
  options.asked_threshold_bytes = 4096;
  World world(options);
  for (const LinkId link : {kA, kB}) {
    v1::Hello hello = HelloOf(link == kA ? "node-a" : "node-b", 2, 1);
    hello.set_fusion_threshold_bytes(4096);
    world.coordinator.AddNode(link, hello, world.now);
    world.coordinator.OnMessage(link, RankJoinedOf(link == kA ? 0 : 1, 0, 100), world.now);
  }
  world.Turn();
  CHECK(world.PlanOf(kB).fusion() == "4096");
}

TEST_CASE("JobCoordinator: nodes that ask for different thresholds hear both") {
  World world;
  world.coordinator.AddNode(kA, HelloOf("node-a", 2, 1), world.now);
  world.coordinator.OnMessage(kA, RankJoinedOf(0, 0, 100), world.now);
  v1::Hello other = HelloOf("node-b", 2, 1);
  other.set_fusion_threshold_bytes(8192);
  world.coordinator.AddNode(kB, other, world.now);
  for (const LinkId link : {kA, kB}) {
    REQUIRE(world.nodes.FailuresOf(link).size() == 1);
    CHECK_THAT(world.nodes.FailuresOf(link)[0], Contains("node-b") && Contains("8192 bytes") &&
                                                    Contains("no fusion threshold") &&
                                                    Contains("RINGD_FUSION_THRESHOLD"));
  }
}

}  // namespace ringd
