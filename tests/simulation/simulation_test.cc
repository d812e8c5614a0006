// Thousands of simulated jobs, and checks that the simulation would notice if something were wrong.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/data_plane.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {
namespace {

// Repeat one with: bazel run //tests/simulation -- --seed N [--nodes N]
std::string RunSeeds(std::uint64_t first, std::uint64_t count, int nodes) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Scenario scenario = MakeScenario(seed, nodes);
    const Outcome outcome = Cluster(scenario).Run();
    if (outcome.submissions == 0) return "seed " + std::to_string(seed) + " did nothing";
    if (!outcome.findings.empty()) {
      return "seed " + std::to_string(seed) + " (" + scenario.kind + "): " + outcome.findings[0];
    }
  }
  return "";
}

Submission MakeSubmission(int rank, std::int64_t value) {
  Submission submission;
  submission.name = "x";
  submission.rank = rank;
  submission.value = value;
  return submission;
}

}  // namespace

TEST_CASE("Scheduler: in 1,500 jobs every operation ends once, rightly, and none hangs") {
  CHECK(RunSeeds(0, 1500, 0) == "");
}

TEST_CASE("Scheduler: the same holds for 64 nodes") { CHECK(RunSeeds(100000, 28, 64) == ""); }

TEST_CASE("Scheduler: the same holds for 2 nodes") { CHECK(RunSeeds(200000, 300, 2) == ""); }

TEST_CASE("Scheduler: the same holds while the measured link changes again and again") {
  std::uint64_t replans = 0;
  for (std::uint64_t seed = 300014; seed < 300014 + 15 * 150; seed += 15) {
    const Scenario scenario = MakeScenario(seed, 0);
    REQUIRE(scenario.kind == "drift");
    const Outcome outcome = Cluster(scenario).Run();
    INFO("seed " << seed);
    CHECK(outcome.findings == std::vector<std::string>());
    replans += outcome.replans;
  }
  CHECK(replans > 150);
}

TEST_CASE("Scheduler: the same holds for a job that begins with the plan of an earlier one") {
  std::uint64_t kept = 0;
  for (std::uint64_t seed = 400000; seed < 400300; ++seed) {
    const Outcome first = Cluster(MakeScenario(seed, 0)).Run();
    Scenario again = MakeScenario(seed, 0);
    again.kept_plan = std::make_shared<const KeptPlan>(first.learned);
    again.expect_no_breaks = false;  // the kept plan may be of another phase of the program
    again.silent_from_phase.reset();
    const Outcome second = Cluster(again).Run();
    INFO("seed " << seed << " (" << again.kind << ")");
    CHECK(second.findings == std::vector<std::string>());
    if (second.origin == PlanOrigin::kKept) ++kept;
  }
  CHECK(kept > 60);
}

TEST_CASE("Scheduler: a regular job that begins with its kept plan is silent after one step") {
  for (std::uint64_t seed = 300000; seed < 300000 + 15 * 40; seed += 15) {
    Scenario scenario = MakeScenario(seed, 0);
    REQUIRE(scenario.kind == "regular");
    const Outcome first = Cluster(scenario).Run();
    REQUIRE(first.findings.empty());
    scenario.kept_plan = std::make_shared<const KeptPlan>(first.learned);
    const Outcome second = Cluster(scenario).Run();
    INFO("seed " << seed);
    CHECK(second.findings == std::vector<std::string>());
    CHECK(second.origin == PlanOrigin::kKept);
    CHECK(second.schedules == 1);
    CHECK(second.messages < first.messages);
  }
}

TEST_CASE("Simulation: a seed gives the same job each time") {
  const Scenario scenario = MakeScenario(11, 0);
  const Outcome first = Cluster(scenario).Run();
  const Outcome second = Cluster(MakeScenario(11, 0)).Run();
  CHECK(first.duration == second.duration);
  CHECK(first.messages == second.messages);
  CHECK(first.submissions == second.submissions);
}

TEST_CASE("Simulation: the jobs visit what they are meant to test") {
  Outcome all;
  for (std::uint64_t seed = 0; seed < 140; ++seed) {
    const Outcome outcome = Cluster(MakeScenario(seed, 0)).Run();
    all.breaks += outcome.breaks;
    all.schedules += outcome.schedules;
    all.learned_operations += outcome.learned_operations;
    all.cancelled_operations += outcome.cancelled_operations;
  }
  CHECK(all.breaks > 100);
  CHECK(all.schedules > 140);
  CHECK(all.learned_operations > 10000);
  CHECK(all.cancelled_operations > 100);
}

TEST_CASE("Ledger: a wrong sum, a second end and an early success are found") {
  Ledger ledger(2);
  Submission first = MakeSubmission(0, 3);
  Submission second = MakeSubmission(1, 4);
  ledger.OnSubmitted(first);
  SECTION("early success") { ledger.OnSucceeded(first, 3); }
  SECTION("wrong sum") {
    ledger.OnSubmitted(second);
    ledger.OnSucceeded(first, 8);
  }
  SECTION("second end") {
    ledger.OnSubmitted(second);
    ledger.OnSucceeded(first, 7);
    REQUIRE(ledger.findings().empty());
    ledger.OnSucceeded(first, 7);
  }
  SECTION("an error without disagreement") {
    ledger.OnSubmitted(second);
    ledger.OnFailed(first, "tensor 'x': no", false);
  }
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("Ledger: ranks that are told different things are found") {
  Ledger ledger(2);
  Submission first = MakeSubmission(0, 3);
  Submission second = MakeSubmission(1, 4);
  second.meta.dtype = DataType::kFloat64;
  ledger.OnSubmitted(first);
  ledger.OnSubmitted(second);
  ledger.OnFailed(first, "tensor 'x': float32, float64", false);
  REQUIRE(ledger.findings().empty());
  ledger.OnFailed(second, "tensor 'x': something else", false);
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("DataPlane: different lists, double starts and late cancels are found") {
  Ledger ledger(2);
  int complete = 0;
  DataPlane wire(2, ledger, [&](OperationId) { ++complete; });
  const OperationId operation{1, 0};
  wire.Start(0, operation, {{"a", {}, 1}});
  REQUIRE(ledger.findings().empty());
  SECTION("different lists") { wire.Start(1, operation, {{"b", {}, 1}}); }
  SECTION("double start") { wire.Start(0, operation, {{"a", {}, 1}}); }
  SECTION("cancel after all have started") {
    wire.Start(1, operation, {{"a", {}, 1}});
    CHECK(complete == 1);
    wire.Cancel(0, operation);
  }
  SECTION("start after a cancel") {
    wire.Cancel(0, operation);
    wire.Start(1, operation, {{"a", {}, 1}});
    CHECK(complete == 0);
  }
  CHECK(ledger.findings().size() == 1);
}

}  // namespace ringd::simulation
