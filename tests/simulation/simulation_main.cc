// Runs simulated jobs from the command line:
//   simulation --seed 123 [--nodes 7]
//       one: who takes part, and what happened to it when
//   simulation --seeds 2000 [--first 0] [--nodes 7]
//       many, with a table by kind of job
// Exits with 1 if a job went wrong, with 2 if the arguments make no sense.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/options.h"
#include "tests/simulation/scenario.h"

namespace ringd::simulation {
namespace {

struct Totals {
  std::uint64_t jobs = 0;
  Outcome sum;
};

unsigned long long Printed(std::uint64_t value) { return value; }
double Milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

void PrintScenario(const Scenario& scenario) {
  std::printf("kind     %s, %d steps\n", scenario.kind.c_str(), scenario.steps);
  int rank = 0;
  for (std::size_t node = 0; node < scenario.ranks_on_node.size(); ++node) {
    const int count = scenario.ranks_on_node[node];
    std::printf("node-%-3zu %d ranks, from %d on\n", node, count, rank);
    rank += count;
  }
  for (std::size_t thread = 0; thread < scenario.programs.size(); ++thread) {
    std::size_t calls = 0;
    for (const Phase& phase : scenario.programs[thread]) calls += phase.tensors.size();
    std::printf("thread   %zu of each rank: %zu operations in %zu phases\n", thread, calls,
                scenario.programs[thread].size());
  }
  std::printf("delays   a message up to %.3f ms, a transfer up to %.3f ms\n",
              Milliseconds(scenario.message_delay), Milliseconds(scenario.transfer_delay));
  std::printf("learns   %s, at most %zu buckets of %zu bytes\n", scenario.learn ? "yes" : "no",
              scenario.max_buckets, scenario.max_bucket_bytes);
  for (const Pause& pause : scenario.pauses) {
    std::printf("pause    node-%d from %.3f ms on, for %.3f ms\n", pause.node,
                Milliseconds(pause.at), Milliseconds(pause.duration));
  }
}

void PrintHeader() {
  std::printf("%-16s %8s %12s %10s %9s %7s %10s %10s %7s %9s\n", "kind", "jobs", "submissions",
              "messages", "schedules", "breaks", "learned", "cancelled", "losses", "virtual s");
}

void Print(const char* label, const Totals& totals) {
  std::printf("%-16s %8llu %12llu %10llu %9llu %7llu %10llu %10llu %7llu %9.1f\n", label,
              Printed(totals.jobs), Printed(totals.sum.submissions), Printed(totals.sum.messages),
              Printed(totals.sum.schedules), Printed(totals.sum.breaks),
              Printed(totals.sum.learned_operations), Printed(totals.sum.cancelled_operations),
              Printed(totals.sum.losses),
              std::chrono::duration<double>(totals.sum.duration).count());
}

int Run(const Options& options) {
  std::map<std::string, Totals> by_kind;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < options.count; ++i) {
    const Scenario scenario = MakeScenario(options.first + i, options.nodes);
    if (options.in_detail) PrintScenario(scenario);
    const Outcome outcome = Cluster(scenario).Run();
    if (options.in_detail) {
      for (const std::string& line : outcome.story) std::printf("%s\n", line.c_str());
    }
    Totals& totals = by_kind[scenario.kind];
    ++totals.jobs;
    totals.sum.submissions += outcome.submissions;
    totals.sum.messages += outcome.messages;
    totals.sum.schedules += outcome.schedules;
    totals.sum.breaks += outcome.breaks;
    totals.sum.learned_operations += outcome.learned_operations;
    totals.sum.cancelled_operations += outcome.cancelled_operations;
    totals.sum.losses += outcome.losses;
    totals.sum.duration += outcome.duration;
    if (outcome.findings.empty()) continue;
    ++wrong;
    std::printf("seed %llu (%s, %zu nodes):\n", Printed(scenario.seed), scenario.kind.c_str(),
                scenario.ranks_on_node.size());
    for (const std::string& finding : outcome.findings) std::printf("  %s\n", finding.c_str());
  }
  PrintHeader();
  for (const auto& [kind, totals] : by_kind) Print(kind.c_str(), totals);
  std::printf("%llu jobs, %llu wrong\n", Printed(options.count), Printed(wrong));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringd::simulation

int main(int argc, char** argv) {
  const auto options = ringd::simulation::ParseOptions({argv + 1, argv + argc});
  if (!options.has_value()) {
    std::fprintf(stderr, "usage: %s %s\n", argv[0], ringd::simulation::kUsage);
    return 2;
  }
  return ringd::simulation::Run(*options);
}
