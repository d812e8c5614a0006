#include "client/cli/run/job_environment.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ringd::cli {
namespace {

bool Sets(absl::string_view entry, absl::string_view name) {
  return absl::StartsWith(entry, name) && entry.size() > name.size() && entry[name.size()] == '=';
}

}  // namespace

Variables RankVariables(const JobPlan& plan, int rank) {
  const int node = rank / plan.ranks_per_node;
  const int size = plan.ranks_per_node * static_cast<int>(plan.nodes.size());
  Variables variables = {
      {"RANK", absl::StrCat(rank)},
      {"WORLD_SIZE", absl::StrCat(size)},
      {"LOCAL_RANK", absl::StrCat(rank % plan.ranks_per_node)},
      {"LOCAL_WORLD_SIZE", absl::StrCat(plan.ranks_per_node)},
      {"GROUP_RANK", absl::StrCat(node)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", absl::StrCat(plan.master_port)},
      {"RINGD_SOCKET", plan.nodes[static_cast<std::size_t>(node)].socket},
      {"RINGD_RENDEZVOUS", plan.nodes[0].peer_address},
      {"RINGD_JOB_ID", plan.job_id},
      {"RINGD_JOB_SECRET", plan.secret},
  };
  if (plan.start_timeout_seconds > 0) {
    variables.emplace_back("RINGD_START_TIMEOUT", absl::StrCat(plan.start_timeout_seconds));
  }
  if (plan.weight > 0) variables.emplace_back("RINGD_WEIGHT", absl::StrCat(plan.weight));
  return variables;
}

std::vector<std::string> RankEnvironment(const JobPlan& plan, int rank,
                                         const std::vector<std::string>& inherited) {
  const Variables variables = RankVariables(plan, rank);
  std::vector<std::string> environment;
  for (const std::string& entry : inherited) {
    const bool replaced = std::any_of(variables.begin(), variables.end(),
                                      [&](const auto& pair) { return Sets(entry, pair.first); });
    if (!replaced) environment.push_back(entry);
  }
  for (const auto& [name, value] : variables) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  // Ranks that each take all cores are slower together than one would be; and a buffer would keep
  // from the user what a rank says, for good if it is killed.
  for (const absl::string_view entry : {"OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=1"}) {
    const absl::string_view name = entry.substr(0, entry.find('='));
    const bool set = std::any_of(inherited.begin(), inherited.end(),
                                 [&](const std::string& text) { return Sets(text, name); });
    if (!set) environment.emplace_back(entry);
  }
  return environment;
}

}  // namespace ringd::cli
