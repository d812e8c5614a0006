#include "tests/simulation/communicators_scenario.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "tests/simulation/random.h"

namespace ringd::simulation {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

int RankCount(const Scenario& scenario) {
  return std::accumulate(scenario.ranks_on_node.begin(), scenario.ranks_on_node.end(), 0);
}

// What ranks do that describe tensors alike; by order, perhaps otherwise, and one rank in an order
// of its own.
Scenario MakeUse(Random& random, const std::vector<int>& ranks_on_node, bool by_order) {
  constexpr std::array<std::uint64_t, 6> kByName = {0, 1, 2, 3, 6, 8};  // see KindOf
  constexpr std::array<std::uint64_t, 6> kByOrder = {0, 1, 2, 4, 5, 5};
  const std::uint64_t kind = (by_order ? kByOrder : kByName)[random.Next() % 6];
  const std::uint64_t seed = (random.Next() % 1'000'000) * kKindCount + kind;
  Scenario use = MakeScenario(seed, static_cast<int>(ranks_on_node.size()));
  use.ranks_on_node = ranks_on_node;
  use.silent_from_phase.reset();
  for (Program& program : use.programs) {
    program.resize(std::min<std::size_t>(program.size(), 25));
    for (Phase& phase : program) {
      phase.external_barrier = false;
      if (by_order && !random.Chance(10)) phase.own_order = false;
      if (!by_order) continue;
      // What is matched by order is in host memory.
      for (PhaseTensor& tensor : phase.tensors) {
        tensor.meta.place = tensor.deviating_meta.place = TensorPlace::kHost;
      }
    }
  }
  use.by_order = by_order;
  return use;
}

PlannedCommunicator Plan(Random& random, const Scenario& job, int number) {
  PlannedCommunicator planned;
  planned.name = "c" + std::to_string(number);
  std::vector<int> ranks(static_cast<std::size_t>(RankCount(job)));
  std::iota(ranks.begin(), ranks.end(), 0);
  random.Shuffle(ranks);
  ranks.resize(static_cast<std::size_t>(random.Int(1, static_cast<int>(ranks.size()))));
  planned.ranks = ranks;
  if (ranks.size() > 1 && random.Chance(10)) planned.absent_rank = ranks.back();
  std::vector<int> on_node;
  int first = 0;
  for (const int count : job.ranks_on_node) {
    const auto here = std::count_if(ranks.begin(), ranks.end(), [&](int rank) {
      return rank >= first && rank < first + count;
    });
    if (here > 0) on_node.push_back(static_cast<int>(here));
    first += count;
  }
  planned.use = MakeUse(random, on_node, random.Chance(50));
  return planned;
}

}  // namespace

CommunicatorsScenario MakeCommunicatorsScenario(std::uint64_t seed) {
  Random random(seed);
  CommunicatorsScenario scenario;
  scenario.seed = seed;
  for (int node = random.Int(1, 5); node > 0; --node) {
    scenario.job.ranks_on_node.push_back(random.Int(1, 3));
  }
  scenario.job.message_delay = random.Duration(microseconds(20), milliseconds(4));
  scenario.job.transfer_delay = random.Duration(microseconds(50), milliseconds(4));
  for (int count = random.Int(1, 6); count > 0; --count) {
    scenario.planned.push_back(Plan(random, scenario.job, count));
  }
  if (random.Chance(40)) {
    Loss loss;
    loss.rank = random.Int(0, RankCount(scenario.job) - 1);
    loss.at = random.Duration(milliseconds(0), milliseconds(120));
    loss.noticed_within = milliseconds(random.Int(1, 150));
    scenario.loss = loss;
  }
  return scenario;
}

}  // namespace ringd::simulation
