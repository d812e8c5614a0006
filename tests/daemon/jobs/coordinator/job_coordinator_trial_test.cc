#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

// 7 others send to the node in the middle.
constexpr int kNodes = 8;
constexpr std::uint64_t kSenders = kNodes - 1;
constexpr std::uint64_t kAssumed = 32 * 1024;

JobCoordinator::Options Choosing(PlanStore* plans, int size = kNodes) {
  JobCoordinator::Options options = OptionsOf(size);
  options.ring_order = {"node0"};  // nothing of links
  options.measure_links = true;
  options.choose_flat_all_reduces = true;
  options.plans = plans;
  options.algorithms.chunk_bytes = 128 * 1024;
  return options;
}

struct World : JoinedNodes {
  using JoinedNodes::JoinedNodes;

  v1::ProbedNodes TrialOf(int node) {
    return nodes.Last(LinkOf(node), &v1::CoordinatorMessage::has_all_reduce_trial,
                      &v1::CoordinatorMessage::all_reduce_trial);
  }
  bool Asked() { return TrialOf(0).node_names_size() > 0; }
  // What all nodes were told, for one buffer.
  std::uint64_t Flat() {
    const std::uint64_t bytes = MembershipOf(0).flat_all_reduce_bytes();
    for (int node = 1; node < size; ++node) {
      CHECK(MembershipOf(node).flat_all_reduce_bytes() == bytes);
    }
    return bytes / static_cast<std::uint64_t>(size - 1);
  }
  v1::LinkFigures Shown() {
    coordinator.Advance(now + milliseconds(1000));
    return nodes.Last(LinkOf(1), &v1::CoordinatorMessage::has_plan, &v1::CoordinatorMessage::plan)
        .link();
  }
  // What going through one node took, and doubling, by size.
  void Report(int node, const std::vector<std::pair<double, double>>& times) {
    v1::NodeMessage message;
    message.mutable_trial_report();
    for (const auto& [flat, doubling] : times) {
      v1::AllReduceTimes* entry = message.mutable_trial_report()->add_times();
      entry->set_bytes(
          kTriedBytes[static_cast<std::size_t>(message.trial_report().times_size() - 1)]);
      entry->set_flat_us(flat);
      entry->set_doubling_us(doubling);
    }
    coordinator.OnMessage(LinkOf(node), message, now);
  }
  void ReportError(int node) {
    v1::NodeMessage message;
    message.mutable_trial_report()->set_error("no way");
    coordinator.OnMessage(LinkOf(node), message, now);
  }
  void ReportAll(const std::vector<std::pair<double, double>>& times) {
    for (int node = 0; node < size; ++node) Report(node, times);
  }
};

}  // namespace

TEST_CASE("JobCoordinator: all nodes try small all-reduces, and hear the choice with the start") {
  PlanStore plans("");
  World world(Choosing(&plans));
  REQUIRE_FALSE(world.Started());
  CHECK(world.coordinator.NeedsTicks());
  CHECK_FALSE(world.coordinator.Open());
  for (int node = 0; node < kNodes; ++node) {
    const v1::ProbedNodes trial = world.TrialOf(node);
    CHECK(trial.node_index() == node);
    CHECK(trial.wire_id() != 77);
    REQUIRE(trial.node_names_size() == kNodes);
    CHECK(trial.transport_addresses(2) == "address of node2");
  }
  // Most nodes find 4 KiB faster through one node, and 16 KiB as much slower.
  for (int node = 1; node < kNodes; ++node) {
    world.Report(node, {{100, 300}, {100, 300}, {100, 205}, {200, 110}});
  }
  REQUIRE_FALSE(world.Started());
  world.Report(0, {{100, 30}, {100, 30}, {100, 30}, {100, 30}});
  REQUIRE(world.Started());
  CHECK(world.Flat() == 4096 + 12288 / 2);
  const v1::LinkFigures shown = world.Shown();
  CHECK(shown.flat_source() == "measured");
  CHECK(shown.flat_all_reduce_bytes() == world.Flat());
  REQUIRE(shown.tried_size() == 4);
  CHECK(shown.tried(3).bytes() == 16384);
  CHECK(shown.tried(3).flat_us() == Approx(200));
  CHECK(shown.tried(3).doubling_us() == Approx(110));
  CHECK(shown.tried_unix_seconds() > 0);

  // The next job, of whomever, knows.
  JobCoordinator::Options options = Choosing(&plans);
  options.uid = 4711;
  World next(options);
  CHECK_FALSE(next.Asked());
  CHECK(next.Flat() == 4096 + 12288 / 2);
  CHECK(next.Shown().tried_size() == 4);
  // But not on other nodes.
  CHECK(World(Choosing(&plans, 7)).Asked());
}

TEST_CASE("JobCoordinator: no all-reduce goes through one node where that has lost") {
  World world(Choosing(nullptr));
  world.ReportAll({{300, 100}});
  REQUIRE(world.Started());
  CHECK(world.Flat() == 0);
  CHECK(world.Shown().flat_source() == "measured");
}

TEST_CASE("JobCoordinator: sizes that were not tried keep what is assumed") {
  World world(Choosing(nullptr));
  SECTION("some") { world.ReportAll({{100, 300}}); }
  SECTION("all") {
    world.ReportAll({});
    CHECK(world.Shown().flat_source() == "assumed");
  }
  REQUIRE(world.Started());
  CHECK(world.Flat() == kAssumed / kSenders);
}

TEST_CASE("JobCoordinator: a trial that fails on a node starts the job at once, as is assumed") {
  PlanStore plans("");
  World world(Choosing(&plans));
  world.Report(1, {{300, 100}});
  SECTION("the node says so") { world.ReportError(2); }
  SECTION("the node reports twice") { world.Report(1, {{300, 100}}); }
  SECTION("the node reports other sizes") { world.Report(2, {}); }
  SECTION("the node reports nonsense") {
    world.Report(2, {{std::numeric_limits<double>::quiet_NaN(), 100}});
  }
  REQUIRE(world.Started());
  CHECK(world.MembershipOf(0).flat_all_reduce_bytes() == kAssumed);
  CHECK(world.Shown().flat_source() == "assumed");
  // What comes late changes nothing.
  world.Report(3, {{300, 100}});
  CHECK(world.nodes.FailuresOf(World::LinkOf(0)).empty());

  // The next job does not lose time with another try.
  World next(Choosing(&plans));
  CHECK_FALSE(next.Asked());
  CHECK(next.MembershipOf(0).flat_all_reduce_bytes() == kAssumed);
}

TEST_CASE("JobCoordinator: a trial that takes too long holds up the job for half a second") {
  World world(Choosing(nullptr));
  for (int node = 1; node < kNodes; ++node) world.Report(node, {{300, 100}});
  world.coordinator.Advance(world.now + milliseconds(499));
  REQUIRE_FALSE(world.Started());
  world.coordinator.Advance(world.now + milliseconds(500));
  REQUIRE(world.Started());
  CHECK(world.MembershipOf(0).flat_all_reduce_bytes() == kAssumed);
}

TEST_CASE("JobCoordinator: a node that goes during the trial ends the job for all") {
  World world(Choosing(nullptr));
  world.coordinator.OnLinkLost(World::LinkOf(2), absl::UnavailableError("gone"));
  REQUIRE(world.nodes.FailuresOf(World::LinkOf(0)).size() == 1);
  CHECK_THAT(world.nodes.FailuresOf(World::LinkOf(0))[0], Catch::Matchers::Contains("node2"));
  world.Report(1, {{300, 100}});
  world.coordinator.Advance(world.now + milliseconds(1000));
  CHECK_FALSE(world.Started());
}

TEST_CASE("JobCoordinator: small all-reduces are tried only where the answer may matter") {
  PlanStore plans("");
  JobCoordinator::Options options = Choosing(&plans);
  std::string source = "assumed";
  SECTION("the user has fixed the size") {
    options.choose_flat_all_reduces = false;
    source = "setting";
  }
  SECTION("nothing is to be measured") { options.measure_links = false; }
  SECTION("two nodes") {
    options = Choosing(&plans, 2);
    source = "";
  }
  SECTION("seventeen nodes") {
    options = Choosing(&plans, 17);
    source = "";
  }
  SECTION("so late that nodes would give up") { options.start_timeout = milliseconds(400); }
  World world(options);
  CHECK_FALSE(world.Asked());
  REQUIRE(world.Started());
  CHECK(world.MembershipOf(0).flat_all_reduce_bytes() == kAssumed);
  CHECK(world.Shown().flat_source() == source);
}

TEST_CASE("JobCoordinator: small all-reduces are tried in the order of the ring, links before") {
  JobCoordinator::Options options = Choosing(nullptr, 4);
  SECTION("fixed") {
    options.ring_order = {"node3", "node1"};
    World world(options);
    CHECK(world.TrialOf(3).node_names(1) == "node2");
    CHECK(world.TrialOf(3).node_index() == 2);
  }
  SECTION("measured") {
    options.ring_order = {};
    World world(options);
    CHECK_FALSE(world.Asked());
    for (int look = 0; look < 2; ++look) {
      for (int node = 0; node < 4; ++node) {
        v1::NodeMessage message;
        for (int to = 0; to < 4; ++to) {
          if (to == node) continue;
          v1::ProbedLink* link = message.mutable_link_report()->add_links();
          link->set_node(static_cast<std::uint32_t>(to));
          link->set_latency_us(50);
          link->set_bytes_per_second(node % 2 == to % 2 ? 1e8 : 1e7);
        }
        world.coordinator.OnMessage(World::LinkOf(node), message, world.now);
      }
    }
    REQUIRE(world.Asked());
    CHECK(world.TrialOf(0).node_names(1) == "node2");
    world.ReportAll({{100, 300}, {300, 100}});
    REQUIRE(world.Started());
    CHECK(world.MembershipOf(0).nodes(1).node_name() == "node2");
    CHECK(world.MembershipOf(0).ring().source() == "measured");
    CHECK(world.Flat() >= 64);
  }
  SECTION("not where links could not be measured") {
    options.ring_order = {};
    World world(options);
    v1::NodeMessage message;
    message.mutable_link_report()->set_error("no way");
    world.coordinator.OnMessage(World::LinkOf(1), message, world.now);
    CHECK_FALSE(world.Asked());
    CHECK(world.Started());
  }
}

}  // namespace ringd
