#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

JobCoordinator::Options Measuring(PlanStore* plans, int size = 4) {
  JobCoordinator::Options options = OptionsOf(size);
  options.measure_links = true;
  options.plans = plans;
  options.algorithms.chunk_bytes = 128 * 1024;
  return options;
}

struct World : JoinedNodes {
  using JoinedNodes::JoinedNodes;

  v1::ProbedNodes ProbeOf(int node) {
    return nodes.Last(LinkOf(node), &v1::CoordinatorMessage::has_link_probe,
                      &v1::CoordinatorMessage::link_probe);
  }
  // "0213": the nodes in ring order, as all of them were told.
  std::string Ring() {
    const v1::Membership first = MembershipOf(0);
    std::string ring;
    for (const v1::NodeMember& member : first.nodes()) ring += member.node_name().substr(4);
    for (int node = 0; node < size; ++node) {
      v1::Membership told = MembershipOf(node);
      CHECK(told.node_index() == static_cast<int>(ring.find(std::to_string(node))));
      told.set_node_index(first.node_index());
      CHECK(told.SerializeAsString() == first.SerializeAsString());
    }
    return ring;
  }
  // The node says that it reaches even or odd nodes, whichever it is, ten times as fast as the
  // others; or that all links are equal.
  void Report(int node, bool equal = false) {
    v1::NodeMessage message;
    for (int to = 0; to < size; ++to) {
      if (to == node) continue;
      v1::ProbedLink* link = message.mutable_link_report()->add_links();
      link->set_node(static_cast<std::uint32_t>(to));
      link->set_latency_us(50);
      link->set_bytes_per_second(equal || node % 2 == to % 2 ? 1e8 : 1e7);
    }
    coordinator.OnMessage(LinkOf(node), message, now);
  }
  void ReportError(int node) {
    v1::NodeMessage message;
    message.mutable_link_report()->set_error("no way");
    coordinator.OnMessage(LinkOf(node), message, now);
  }
};

}  // namespace

TEST_CASE(
    "JobCoordinator: all nodes measure, then all hear the same ring, which follows the links") {
  PlanStore plans("");
  World world(Measuring(&plans));
  REQUIRE_FALSE(world.Started());
  CHECK(world.coordinator.NeedsTicks());
  CHECK_FALSE(world.coordinator.Open());
  const std::vector<v1::CoordinatorMessage>& to_third = world.nodes.To(World::LinkOf(3));
  CHECK(std::any_of(to_third.begin(), to_third.end(), [](const auto& message) {
    return message.has_gathering() && message.gathering().missing_ranks().empty();
  }));
  for (int node = 0; node < 4; ++node) {
    const v1::ProbedNodes probe = world.ProbeOf(node);
    CHECK(probe.node_index() == node);
    CHECK(probe.wire_id() != 77);
    REQUIRE(probe.node_names_size() == 4);
    CHECK(probe.node_names(2) == "node2");
    CHECK(probe.transport_addresses(2) == "address of node2");
  }
  const std::uint64_t first_wire = world.ProbeOf(0).wire_id();
  for (const int node : {2, 0, 3, 1}) {
    CHECK(world.ProbeOf(0).wire_id() == first_wire);
    world.Report(node);
  }
  // Another order needs a second look.
  CHECK(world.ProbeOf(0).wire_id() != first_wire);
  for (const int node : {2, 0, 3}) world.Report(node);
  REQUIRE_FALSE(world.Started());
  world.Report(1);
  CHECK(world.Ring() == "0213");
  const v1::RingChoice ring = world.MembershipOf(1).ring();
  CHECK(ring.source() == "measured");
  CHECK(ring.measured_unix_seconds() > 0);
  REQUIRE(ring.gbit_per_second_size() == 16);
  CHECK(ring.gbit_per_second(1) == Approx(0.8));   // 0 to 2
  CHECK(ring.gbit_per_second(2) == Approx(0.08));  // 0 to 1
  CHECK(ring.latency_us(1) == Approx(50));

  // The next job, of whomever, knows the links.
  JobCoordinator::Options options = Measuring(&plans);
  options.uid = 4711;
  World next(options);
  CHECK(next.ProbeOf(0).node_names().empty());
  CHECK(next.Ring() == "0213");
}

TEST_CASE("JobCoordinator: what a second look does not find keeps the order of ranks") {
  World world(Measuring(nullptr));
  for (int node = 0; node < 4; ++node) world.Report(node);
  REQUIRE_FALSE(world.Started());
  SECTION("all links are equal") {
    for (int node = 0; node < 4; ++node) world.Report(node, /*equal=*/true);
    CHECK(world.Ring() == "0123");
    CHECK(world.MembershipOf(0).ring().source() == "ranks");
    CHECK(world.MembershipOf(0).ring().gbit_per_second_size() == 16);
  }
  SECTION("but one that comes too late does not count") {
    world.Report(2, /*equal=*/true);
    world.coordinator.Advance(world.now + milliseconds(500));
    CHECK(world.Ring() == "0213");
  }
}

TEST_CASE("JobCoordinator: links that are equal need no second look") {
  World world(Measuring(nullptr));
  for (int node = 0; node < 4; ++node) world.Report(node, /*equal=*/true);
  CHECK(world.Ring() == "0123");
}

TEST_CASE("JobCoordinator: measuring that fails on a node starts the job at once, by ranks") {
  PlanStore plans("");
  World world(Measuring(&plans));
  world.Report(1);
  SECTION("the node says so") { world.ReportError(2); }
  SECTION("the node reports nonsense") { world.Report(1); }
  CHECK(world.Ring() == "0123");
  CHECK(world.MembershipOf(0).ring().source() == "ranks");
  CHECK(world.MembershipOf(0).ring().gbit_per_second().empty());
  // What comes late changes nothing.
  const std::size_t told = world.nodes.To(World::LinkOf(0)).size();
  world.Report(3);
  world.ReportError(0);
  CHECK(world.nodes.To(World::LinkOf(0)).size() == told);
  CHECK(world.nodes.FailuresOf(World::LinkOf(0)).empty());

  // The next job does not lose time with another try.
  World next(Measuring(&plans));
  CHECK(next.ProbeOf(0).node_names().empty());
  CHECK(next.Ring() == "0123");
}

TEST_CASE("JobCoordinator: measuring that takes too long holds up the job for half a second") {
  World world(Measuring(nullptr));
  for (const int node : {0, 1, 2}) world.Report(node);
  world.coordinator.Advance(world.now + milliseconds(499));
  REQUIRE_FALSE(world.Started());
  world.coordinator.Advance(world.now + milliseconds(500));
  CHECK(world.Ring() == "0123");
}

TEST_CASE("JobCoordinator: a node that goes while links are measured ends the job for all") {
  World world(Measuring(nullptr));
  world.coordinator.OnLinkLost(World::LinkOf(2), absl::UnavailableError("gone"));
  REQUIRE(world.nodes.FailuresOf(World::LinkOf(0)).size() == 1);
  CHECK_THAT(world.nodes.FailuresOf(World::LinkOf(0))[0], Catch::Matchers::Contains("node2"));
  world.Report(1);
  world.coordinator.Advance(world.now + milliseconds(1000));
  CHECK_FALSE(world.Started());
}

TEST_CASE("JobCoordinator: links are measured only where the answer may matter") {
  PlanStore plans("");
  JobCoordinator::Options options = Measuring(&plans);
  std::string ring = "0123";
  std::string source = "ranks";
  SECTION("switched off") { options.measure_links = false; }
  SECTION("the user has fixed the order") {
    options.ring_order = {"node3", "node1"};
    ring = "0231";
    source = "setting";
  }
  SECTION("three nodes") {
    options = Measuring(&plans, 3);
    ring = "012";
  }
  SECTION("so late that nodes would give up") { options.start_timeout = milliseconds(400); }
  World world(options);
  CHECK(world.ProbeOf(0).node_names().empty());
  CHECK(world.Ring() == ring);
  CHECK(world.MembershipOf(0).ring().source() == source);
}

TEST_CASE("JobCoordinator: an order that names none of the job's nodes fixes nothing") {
  JobCoordinator::Options options = Measuring(nullptr);
  options.ring_order = {"elsewhere"};
  World world(options);
  CHECK(world.ProbeOf(0).node_names_size() == 4);
}

TEST_CASE("JobCoordinator: all nodes hear that an order does not fit the job") {
  JobCoordinator::Options options = OptionsOf(4);
  std::string misfit;
  SECTION("no order") {}
  SECTION("one for the whole cluster") {
    options.ring_order = {"other", "node3", "node2", "node1", "node0", "another"};
  }
  SECTION("a name is wrong") {
    options.ring_order = {"node3", "node2", "nodel", "node0"};
    misfit =
        "does not name node1, which the ring takes behind the nodes that it names; no nodes of the "
        "job are nodel";
  }
  SECTION("all names are wrong") {
    options.ring_order = {"elsewhere"};
    misfit =
        "names none of the job's nodes (node0, node1, node2, node3) and is not followed; it names "
        "elsewhere";
  }
  World world(options);
  REQUIRE(world.Started());
  for (int node = 0; node < 4; ++node) {
    const absl::StatusOr<Membership> told = FromProto(world.MembershipOf(node));
    REQUIRE(told.ok());
    CHECK(told->ring.misfit == misfit);
  }
}

}  // namespace ringd
