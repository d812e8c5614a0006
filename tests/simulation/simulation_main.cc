// Runs simulated jobs from the command line:
//   simulation --seed 123 [--nodes 7]             one job, in detail
//   simulation --seeds 2000 [--first 0] [--nodes 7]  many, with a table by kind of job
// Exits with 1 if a job went wrong.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "tests/simulation/cluster.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {
namespace {

struct Options {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int nodes = 0;
};

struct Totals {
  std::uint64_t jobs = 0;
  Outcome sum;
};

bool Parse(int argc, char** argv, Options& options) {
  if (argc < 3 || argc % 2 == 0) return false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seed") == 0) {
      options.first = value;
      options.count = 1;
    } else if (std::strcmp(argv[i], "--seeds") == 0) {
      options.count = value;
    } else if (std::strcmp(argv[i], "--first") == 0) {
      options.first = value;
    } else if (std::strcmp(argv[i], "--nodes") == 0 && value <= 64 && value != 1) {
      options.nodes = static_cast<int>(value);
    } else {
      return false;
    }
  }
  return true;
}

void Print(const char* label, const Totals& totals) {
  const auto count = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%-16s %8llu %12llu %10llu %9llu %7llu %10llu %10llu %9.1f\n", label,
              count(totals.jobs), count(totals.sum.submissions), count(totals.sum.messages),
              count(totals.sum.schedules), count(totals.sum.breaks),
              count(totals.sum.learned_operations), count(totals.sum.cancelled_operations),
              std::chrono::duration<double>(totals.sum.duration).count());
}

int Run(const Options& options) {
  std::map<std::string, Totals> by_kind;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < options.count; ++i) {
    const Scenario scenario = MakeScenario(options.first + i, options.nodes);
    const Outcome outcome = Cluster(scenario).Run();
    Totals& totals = by_kind[scenario.kind];
    ++totals.jobs;
    totals.sum.submissions += outcome.submissions;
    totals.sum.messages += outcome.messages;
    totals.sum.schedules += outcome.schedules;
    totals.sum.breaks += outcome.breaks;
    totals.sum.learned_operations += outcome.learned_operations;
    totals.sum.cancelled_operations += outcome.cancelled_operations;
    totals.sum.duration += outcome.duration;
    if (outcome.findings.empty()) continue;
    ++wrong;
    std::printf("seed %llu (%s, %zu nodes):\n", static_cast<unsigned long long>(scenario.seed),
                scenario.kind.c_str(), scenario.ranks_on_node.size());
    for (const std::string& finding : outcome.findings) std::printf("  %s\n", finding.c_str());
  }
  std::printf("%-16s %8s %12s %10s %9s %7s %10s %10s %9s\n", "kind", "jobs", "submissions",
              "messages", "schedules", "breaks", "learned", "cancelled", "virtual s");
  for (const auto& [kind, totals] : by_kind) Print(kind.c_str(), totals);
  std::printf("%llu jobs, %llu wrong\n", static_cast<unsigned long long>(options.count),
              static_cast<unsigned long long>(wrong));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringd::simulation

int main(int argc, char** argv) {
  ringd::simulation::Options options;
  if (!Parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s --seed N | --seeds N [--first N] [--nodes 2..64]\n", argv[0]);
    return 2;
  }
  return ringd::simulation::Run(options);
}
