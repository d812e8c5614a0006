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
  }
  CHECK(all.made == planned);
  CHECK(all.ended == planned);
  CHECK(planned > 600);
  CHECK(failed > 100);
  CHECK(all.refused > 100);
  CHECK(all.submissions > 50'000);
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
