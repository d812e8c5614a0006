// What a rank finds in its environment.
#ifndef RINGD_CLIENT_CLI_RUN_JOB_ENVIRONMENT_H_
#define RINGD_CLIENT_CLI_RUN_JOB_ENVIRONMENT_H_

#include <string>
#include <utility>
#include <vector>

namespace ringd::cli {

// One node as the ranks see it.
struct NodeAddress {
  std::string socket;
  std::string peer_address;
};

struct JobPlan {
  std::string job_id;
  std::string secret;
  int ranks_per_node = 1;
  std::vector<NodeAddress> nodes;
  int master_port = 0;
  double start_timeout_seconds = 0;  // 0: not set
  int weight = 0;                    // 0: not set
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// What is set for `rank`, whatever the user's environment says.
Variables RankVariables(const JobPlan& plan, int rank);

// `inherited` (NAME=value) with the rank's variables in place of its own, and with those that are
// set only if the user has not: one OpenMP thread a rank, unbuffered output of Python.
std::vector<std::string> RankEnvironment(const JobPlan& plan, int rank,
                                         const std::vector<std::string>& inherited);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_JOB_ENVIRONMENT_H_
