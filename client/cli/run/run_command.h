// `ringctl run`: starts the ranks of a job on this machine, and a ringd for them if there is none.
#ifndef RINGD_CLIENT_CLI_RUN_RUN_COMMAND_H_
#define RINGD_CLIENT_CLI_RUN_RUN_COMMAND_H_

#include <string>
#include <vector>

namespace ringd::cli {

struct RunOptions {
  int ranks_per_node = 1;
  int nodes = 0;               // 0: this node, through its ringd; else that many pretended ones
  std::string job_id;          // empty: made up
  double timeout_seconds = 0;  // 0: none
  double start_timeout_seconds = 0;
  int weight = 0;  // 0: not set
  double grace_seconds = 5;
  std::string socket;  // empty: RINGD_SOCKET, or the default if a ringd answers there
  std::string log_folder;
  // Where private ringds keep what they learn, an absolute path; empty: nowhere.
  std::string state_folder;
  bool prefix = true;
  bool keep = false;  // the private ringds' folder
  std::string ringd_binary;
  std::vector<std::string> command;
};

// Blocks until the run has ended and nothing of it is left. The result is an ExitCode. Must be
// called while the process has one thread.
int RunCommand(const RunOptions& options);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_RUN_COMMAND_H_
