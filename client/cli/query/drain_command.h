// `ringctl drain`: a node takes no new jobs, or takes them again.
#ifndef RINGD_CLIENT_CLI_QUERY_DRAIN_COMMAND_H_
#define RINGD_CLIENT_CLI_QUERY_DRAIN_COMMAND_H_

#include <string>

namespace ringd::cli {

struct DrainOptions {
  std::string socket;  // empty: as QueryOptions
  bool undo = false;
  double wait_seconds = 0;  // until the last trainer has gone, for so long at most; 0: not at all
  bool json = false;
};

// Prints to standard output; problems to standard error. The result is an ExitCode: kFailed also if
// trainers are still attached when the wait is over, or somebody has undone the drain meanwhile.
int DrainCommand(const DrainOptions& options);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_DRAIN_COMMAND_H_
