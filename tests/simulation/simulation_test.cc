// Thousands of simulated jobs, and checks that the simulation would notice if something were wrong.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/data_plane.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/ledger.h"
#include "tests/simulation/network.h"
#include "tests/simulation/random.h"
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

// The first `count` seeds from `first` on whose scenarios are of this kind.
std::vector<std::uint64_t> SeedsOf(const std::string& kind, std::uint64_t first,
                                   std::size_t count) {
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = first; seeds.size() < count; ++seed) {
    if (seed == first + kKindCount && seeds.empty()) return seeds;
    if (KindOf(seed) == kind) seeds.push_back(seed);
  }
  return seeds;
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
  for (const std::uint64_t seed : SeedsOf("drift", 300000, 150)) {
    const Outcome outcome = Cluster(MakeScenario(seed, 0)).Run();
    INFO("seed " << seed);
    CHECK(outcome.findings == std::vector<std::string>());
    replans += outcome.replans;
  }
  // 103 to 159 in eleven such sets of seeds.
  CHECK(replans > 75);
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
  for (const std::uint64_t seed : SeedsOf("regular", 300000, 40)) {
    Scenario scenario = MakeScenario(seed, 0);
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

TEST_CASE(
    "Scheduler: what was accepted ends with one cause on all nodes when a node or a rank is lost") {
  const std::string kind =
      GENERATE(as<std::string>{}, "node_loss", "rank_loss", "two_losses", "host_loss");
  std::size_t ended_early = 0;
  std::size_t overruled = 0;
  std::size_t divided = 0;
  for (const std::uint64_t seed : SeedsOf(kind, 500000, 300)) {
    const Outcome outcome = Cluster(MakeScenario(seed, 0)).Run();
    INFO("seed " << seed << " (" << kind << ")");
    CHECK(outcome.findings == std::vector<std::string>());
    if (!outcome.cause.empty()) ++ended_early;
    overruled += outcome.overruled;
    if (outcome.is_divided) ++divided;
  }
  INFO(kind);
  CHECK(ended_early > 200);
  // Nodes that had seen the one loss, when word of the other came.
  if (kind == "two_losses") CHECK(overruled > 50);
  // Nodes that heard what the coordinator said last, and others that did not.
  CHECK((divided > 10) == (kind == "host_loss"));
}

TEST_CASE("Scheduler: with more tensors than buckets the others are negotiated") {
  constexpr int kTensors = 1600;
  Scenario scenario;
  scenario.kind = "many";
  scenario.ranks_on_node = {1, 1};
  scenario.max_bucket_bytes = 1;  // a bucket for each
  Phase phase;
  for (int i = 0; i < kTensors; ++i) {
    phase.tensors.push_back({"w" + std::to_string(i), {}, std::nullopt, {}});
  }
  scenario.programs.push_back(Program(5, phase));
  REQUIRE(scenario.max_buckets == 1536);  // as in ringd
  const Outcome outcome = Cluster(scenario).Run();
  CHECK(outcome.findings == std::vector<std::string>());
  CHECK(outcome.submissions == 2 * 5 * kTensors);
  CHECK(outcome.buckets == scenario.max_buckets);
}

TEST_CASE("Simulation: a seed gives the same job each time") {
  const std::uint64_t seed =
      SeedsOf(GENERATE(as<std::string>{}, "mixture", "two_losses"), 0, 1).front();
  const Outcome first = Cluster(MakeScenario(seed, 0)).Run();
  const Outcome second = Cluster(MakeScenario(seed, 0)).Run();
  CHECK(first.story == second.story);
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
    all.unsent_operations += outcome.unsent_operations;
    all.losses += outcome.losses;
    all.launched_operations += outcome.launched_operations;
  }
  CHECK(all.breaks > 100);
  CHECK(all.schedules > 140);
  CHECK(all.learned_operations > 10000);
  CHECK(all.launched_operations > 1000);
  CHECK(all.cancelled_operations > 100);
  CHECK(all.unsent_operations > 100);
  CHECK(all.losses > 15);
}

TEST_CASE("Ledger: a wrong sum, a second end and an early success are found") {
  Ledger ledger({1, 1});
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
    ledger.OnFailed(first, "tensor 'x': no");
  }
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("Ledger: ranks that are told different things are found") {
  Ledger ledger({1, 1});
  Submission first = MakeSubmission(0, 3);
  Submission second = MakeSubmission(1, 4);
  second.meta.dtype = DataType::kFloat64;
  ledger.OnSubmitted(first);
  ledger.OnSubmitted(second);
  ledger.OnFailed(first, "tensor 'x': float32, float64");
  REQUIRE(ledger.findings().empty());
  ledger.OnFailed(second, "tensor 'x': something else");
  CHECK(ledger.findings().size() == 1);
}

// Two nodes, of two ranks and of one, that have all submitted the same.
struct ThreeRanks {
  ThreeRanks() {
    for (Submission& submission : submissions) ledger.OnSubmitted(submission);
    ledger.Allow("rank 3");
    ledger.Allow("node-2");
  }

  Ledger ledger{std::vector<int>{2, 1}};
  Submission submissions[3] = {MakeSubmission(0, 1), MakeSubmission(1, 2), MakeSubmission(2, 4)};
};

TEST_CASE("Ledger: a job's end may overtake a success on the way to another node") {
  ThreeRanks ranks;
  ranks.ledger.OnSucceeded(ranks.submissions[0], 7);
  ranks.ledger.OnSucceeded(ranks.submissions[1], 7);
  CHECK(ranks.ledger.Open(0) == 0);
  CHECK(ranks.ledger.Open(1) == 1);
  ranks.ledger.OnJobFailed(ranks.submissions[2], "rank 3 was killed");
  CHECK(ranks.ledger.Open(1) == 0);
  CHECK(ranks.ledger.findings().empty());
  CHECK(ranks.ledger.cause() == "rank 3 was killed");
}

TEST_CASE("Ledger: a job's end that nodes or ranks see differently is found") {
  ThreeRanks ranks;
  Ledger& ledger = ranks.ledger;
  SECTION("two causes") {
    ledger.OnJobFailed(ranks.submissions[0], "rank 3 was killed");
    ledger.OnJobFailed(ranks.submissions[1], "rank 3 was killed");
    REQUIRE(ledger.findings().empty());
    ledger.OnJobFailed(ranks.submissions[2], "node-2 was lost");
  }
  SECTION("a cause that is none") { ledger.OnJobFailed(ranks.submissions[2], "rank 1 was killed"); }
  SECTION("a second end") {
    ledger.OnJobFailed(ranks.submissions[2], "rank 3 was killed");
    REQUIRE(ledger.findings().empty());
    ledger.OnJobFailed(ranks.submissions[2], "rank 3 was killed");
  }
  SECTION("two ends on one node") {
    ledger.OnSucceeded(ranks.submissions[0], 7);
    REQUIRE(ledger.findings().empty());
    ledger.OnJobFailed(ranks.submissions[1], "rank 3 was killed");
  }
  SECTION("a success after the job's end") {
    Submission another = MakeSubmission(2, 0);
    another.occurrence = 1;
    ledger.OnSubmitted(another);
    ledger.OnJobFailed(another, "rank 3 was killed");
    REQUIRE(ledger.findings().empty());
    ledger.OnSucceeded(ranks.submissions[2], 7);
  }
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("Ledger: two causes are one too many, unless the coordinator went amid its word") {
  ThreeRanks ranks;
  Ledger& ledger = ranks.ledger;
  ledger.Allow("node-0 went");
  ledger.AllowWhereNoneWasHeard("node-0 went");
  ledger.OnJobFailed(ranks.submissions[0], "rank 3 was killed");
  SECTION("on two nodes") {
    ledger.OnJobFailed(ranks.submissions[1], "rank 3 was killed");
    ledger.OnJobFailed(ranks.submissions[2], "node-0 went");
    CHECK(ledger.is_divided());
    CHECK(ledger.findings().empty());
  }
  SECTION("on one node") {
    Submission another = MakeSubmission(1, 0);
    another.occurrence = 1;
    ledger.OnSubmitted(another);
    ledger.OnJobFailed(another, "node-0 went");
    CHECK(ledger.findings().size() == 1);
  }
  SECTION("neither of which is that") {
    ledger.OnJobFailed(ranks.submissions[2], "node-2 was lost");
    CHECK(ledger.findings().size() == 1);
  }
}

TEST_CASE("Network: messages stay in order through pauses that overlap, and stop at a loss") {
  using std::chrono::milliseconds;
  Scenario scenario;
  scenario.ranks_on_node = {1, 1};
  scenario.message_delay = std::chrono::nanoseconds(0);
  scenario.pauses = {{1, milliseconds(3), milliseconds(10)}, {1, milliseconds(1), milliseconds(4)}};
  EventQueue events;
  Network network(scenario, events, Random(1));
  std::vector<int> arrived;
  for (int i = 0; i < 6; ++i) {
    events.After(milliseconds(i), [&, i] { network.ToNode(1, [&, i] { arrived.push_back(i); }); });
  }
  events.After(milliseconds(20), [&] { network.Lose(1); });
  events.After(milliseconds(21), [&] { network.ToNode(1, [&] { arrived.push_back(6); }); });
  while (events.RunOne()) continue;
  CHECK(arrived == std::vector<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("Network: of what a lost host has sent a first part arrives, and then that it is lost") {
  Scenario scenario;
  scenario.ranks_on_node = {1, 1, 1};
  scenario.message_delay = std::chrono::milliseconds(10);
  int cut_short = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EventQueue events;
    Network network(scenario, events, Random(seed));
    std::vector<int> arrived[2];
    const auto send = [&](int what) {
      for (int node : {1, 2}) {
        network.ToNode(node, [&arrived, node, what] { arrived[node - 1].push_back(what); });
      }
    };
    for (int i = 0; i < 20; ++i) {
      events.After(std::chrono::milliseconds(i), [&send, i] { send(i); });
    }
    events.After(std::chrono::milliseconds(20), [&] {
      network.LoseHost(0);
      send(-1);
    });
    while (events.RunOne()) continue;
    for (const std::vector<int>& some : arrived) {
      REQUIRE(some.back() == -1);
      for (int i = 0; i + 1 < static_cast<int>(some.size()); ++i) {
        REQUIRE(some[static_cast<std::size_t>(i)] == i);
      }
    }
    if (arrived[0].size() != arrived[1].size()) ++cut_short;
  }
  CHECK(cut_short > 5);
}

TEST_CASE("DataPlane: what has no content is done at once, unless it is learned") {
  Ledger ledger({1, 1});
  int complete = 0;
  DataPlane wire(2, ledger, [&](OperationId) { ++complete; });
  const std::vector<Contribution> empty = {{"a", {.shape = {3, 0}}, 0}};
  wire.Start(0, {0, 0}, empty);
  wire.Start(0, {1, 0}, empty);
  CHECK_FALSE(wire.IsSent({0, 0}));
  CHECK(wire.IsSent({1, 0}));
  wire.Complete(0, {0, 0});
  wire.Start(1, {0, 0}, empty);
  wire.Complete(1, {0, 0});
  CHECK(complete == 0);
  CHECK(ledger.findings().empty());
  wire.Complete(0, {1, 0});
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("DataPlane: different lists, double starts and late cancels are found") {
  Ledger ledger({1, 1});
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

TEST_CASE("DataPlane: launches in another order, and one that is taken back, are found") {
  Ledger ledger({1, 1});
  DataPlane wire(2, ledger, [](OperationId) {});
  TensorMeta on_gpu;
  on_gpu.place = TensorPlace::kDevice;
  const std::vector<Contribution> a = {{"a", on_gpu, 1}};
  const std::vector<Contribution> b = {{"b", on_gpu, 1}};
  wire.Start(0, {1, 0}, a);
  wire.Start(0, {2, 0}, b);
  REQUIRE(ledger.findings().empty());
  SECTION("another order") { wire.Start(1, {2, 0}, b); }
  SECTION("taken back") { wire.Cancel(0, {2, 0}); }
  CHECK(ledger.findings().size() == 1);
}

}  // namespace ringd::simulation
