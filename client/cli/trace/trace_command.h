// `ringctl trace`: what happens to a job's operations for a while, on all its nodes, as a file that
// can be drawn.
#ifndef RINGD_CLIENT_CLI_TRACE_TRACE_COMMAND_H_
#define RINGD_CLIENT_CLI_TRACE_TRACE_COMMAND_H_

#include <string>

namespace ringd::cli {

struct TraceOptions {
  std::string socket;  // empty: RINGD_SOCKET, else the default
  std::string job_id;  // empty: the only one that there is
  std::string out;     // "-": standard output
  double seconds = 5;
  bool json = false;  // what has been written, told as JSON
};

// Blocks for the time asked for, or until the job ends or SIGINT or SIGTERM comes: what there is
// then is written. Problems go to standard error. The result is an ExitCode.
int TraceCommand(TraceOptions options);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TRACE_TRACE_COMMAND_H_
