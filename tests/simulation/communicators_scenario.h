// What the ranks of a simulated job do with communicators.
#ifndef RINGD_TESTS_SIMULATION_COMMUNICATORS_SCENARIO_H_
#define RINGD_TESTS_SIMULATION_COMMUNICATORS_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/scenario.h"

namespace ringd::simulation {

// One that all its ranks ask for, each when its time has come, but for one perhaps that never does.
struct PlannedCommunicator {
  std::string name;
  std::vector<int> ranks;          // of the job, in the communicator's order
  std::optional<int> absent_rank;  // then it is refused
  // What its ranks do with it, and whether it matches by order; its nodes are the communicator's.
  Scenario use;
};

struct CommunicatorsScenario {
  std::uint64_t seed = 0;
  Scenario job;  // who takes part, and the network
  std::vector<PlannedCommunicator> planned;
  std::optional<Loss> loss;  // of a rank
};

// The scenario of a seed.
CommunicatorsScenario MakeCommunicatorsScenario(std::uint64_t seed);

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_COMMUNICATORS_SCENARIO_H_
