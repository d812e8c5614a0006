#include "daemon/jobs/measuring/all_reduce_prober.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/backends/backend_world.h"

namespace ringd {
namespace {

// Probes of all nodes of a world, and their reports.
struct Probes {
  Probes(BackendWorld& of, int node_count) : world(of), reports(Count(node_count)) {
    v1::ProbedNodes nodes;
    nodes.set_wire_id(99);
    for (int node = 0; node < world.node_count(); ++node) {
      nodes.add_node_names("node" + std::to_string(node));
      nodes.add_transport_addresses(world.transport(node).LocalAddress());
    }
    for (int node = 0; node < node_count; ++node) {
      nodes.set_node_index(node);
      auto started = AllReduceProber::Start(world.transport(node), nodes, {});
      REQUIRE(started.ok());
      probes.push_back(*std::move(started));
    }
  }

  static std::size_t Count(int nodes) { return static_cast<std::size_t>(nodes); }

  bool RunUntilReported() {
    return world.RunUntil([&] {
      bool all = true;
      for (std::size_t node = 0; node < probes.size(); ++node) {
        if (reports[node].has_value()) continue;
        reports[node] = probes[node]->Poll();
        all = all && reports[node].has_value();
      }
      return all;
    });
  }

  BackendWorld& world;
  std::vector<std::unique_ptr<StartProbe>> probes;
  std::vector<std::optional<v1::NodeMessage>> reports;
};

}  // namespace

TEST_CASE("AllReduceProber: all nodes end alike, with times of the sizes that were tried") {
  BackendWorld world(GENERATE(BackendKind::kLoopback, BackendKind::kUcx), GENERATE(3, 5));
  Probes probes(world, world.node_count());
  REQUIRE(probes.RunUntilReported());
  const v1::TrialReport& first = probes.reports[0]->trial_report();
  for (std::size_t node = 0; node < probes.reports.size(); ++node) {
    const v1::TrialReport& report = probes.reports[node]->trial_report();
    CHECK(report.error().empty());
    // How many depends on how busy the machine is.
    REQUIRE(report.times_size() == first.times_size());
    for (int size = 0; size < report.times_size(); ++size) {
      CHECK(report.times(size).bytes() == kTriedBytes[static_cast<std::size_t>(size)]);
      CHECK(report.times(size).flat_us() > 0);
      CHECK(report.times(size).doubling_us() > 0);
    }
    // Once.
    CHECK_FALSE(probes.probes[node]->Poll().has_value());
  }
}

TEST_CASE("AllReduceProber: reports also when it is given up, or a node has gone") {
  BackendWorld world(BackendKind::kLoopback, 3);
  // The third never takes part.
  Probes probes(world, 2);
  for (int step = 0; step < 100; ++step) world.Step();
  CHECK_FALSE(probes.probes[0]->Poll().has_value());
  std::string why;
  SECTION("given up") {
    for (const auto& probe : probes.probes) probe->Abort("it took too long");
    why = "it took too long";
  }
  SECTION("gone") {
    world.Kill(2);
    why = "node2";
  }
  REQUIRE(probes.RunUntilReported());
  for (const auto& report : probes.reports) {
    CHECK(report->trial_report().times().empty());
    CHECK_THAT(report->trial_report().error(), Catch::Matchers::Contains(why));
  }
}

TEST_CASE("AllReduceProber: what makes no sense is refused") {
  BackendWorld world(BackendKind::kLoopback, 3);
  v1::ProbedNodes nodes;
  nodes.set_wire_id(99);
  nodes.add_node_names("node0");
  CHECK(AllReduceProber::Start(world.transport(0), nodes, {}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  nodes.add_transport_addresses(world.transport(0).LocalAddress());
  nodes.set_node_index(1);
  CHECK(AllReduceProber::Start(world.transport(0), nodes, {}).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

}  // namespace ringd
