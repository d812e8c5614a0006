// Hundreds of simulated jobs whose ranks make, use and destroy communicators side by side.
#include "tests/simulation/communicators.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace ringd::simulation {

TEST_CASE("Communicators: in 600 jobs each is made, used and ended, and a loss ends all alike") {
  CommunicatorsOutcome all;
  std::size_t planned = 0;
  std::size_t failed = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const CommunicatorsScenario scenario = MakeCommunicatorsScenario(seed);
    const CommunicatorsOutcome outcome = CommunicatorsWorld(scenario).Run();
    INFO("seed " << seed);
    REQUIRE(outcome.findings == std::vector<std::string>());
    if (!outcome.failed) {
      for (const PlannedCommunicator& one : scenario.planned) {
        planned += one.absent_rank.has_value() ? 0 : 1;
      }
      all.made += outcome.made;
      all.ended += outcome.ended;
    }
    failed += outcome.failed ? 1 : 0;
    all.refused += outcome.refused;
    all.submissions += outcome.submissions;
    all.by_order += outcome.by_order;
    all.differed += outcome.differed;
  }
  CHECK(all.made == planned);
  CHECK(all.ended == planned);
  CHECK(planned > 600);
  CHECK(failed > 100);
  CHECK(all.refused > 100);
  CHECK(all.submissions > 50'000);
  CHECK(all.by_order > 20'000);
  CHECK(all.by_order - all.differed > 20'000);
  CHECK(all.differed > 1'000);
}

TEST_CASE("Communicators: by order, what differs and completes nevertheless is found") {
  Ledger ledger({1, 1});
  int differences = 0;
  DataPlane data_plane(2, ledger, [](OperationId) { FAIL("nodes differ"); });
  data_plane.MatchByOrder([&](OperationId, int, int) { ++differences; });
  Contribution contribution{"operation 0", {}, 1};
  data_plane.Start(1, {2, 0}, {contribution});
  contribution.meta.shape = {2};
  data_plane.Start(0, {2, 0}, {contribution});
  CHECK(differences == 1);
  CHECK(ledger.findings().empty());
  static_cast<void>(data_plane.Complete(0, {2, 0}));
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("Communicators: what differs may be given up by order, and what does not may not") {
  Ledger ledger({1, 1});
  DataPlane data_plane(2, ledger, [](OperationId) {});
  data_plane.MatchByOrder([](OperationId, int, int) {});
  const Contribution contribution{"operation 0", {}, 1};
  data_plane.Start(1, {2, 0}, {contribution});
  data_plane.GiveUp(1, {2, 0});
  CHECK(ledger.findings().size() == 1);
}

TEST_CASE("Communicators: a seed is one course of events") {
  for (const std::uint64_t seed : {3, 17, 101}) {
    const CommunicatorsScenario scenario = MakeCommunicatorsScenario(seed);
    const CommunicatorsOutcome first = CommunicatorsWorld(scenario).Run();
    const CommunicatorsOutcome second = CommunicatorsWorld(scenario).Run();
    CHECK(first.submissions == second.submissions);
    CHECK(first.made == second.made);
    CHECK(first.ended == second.ended);
    CHECK(first.failed == second.failed);
  }
}

}  // namespace ringd::simulation
