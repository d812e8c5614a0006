// `ringctl status`, `gpus`, `jobs`, `comms` and `queues`: ask, print, and again if wanted.
#ifndef RINGD_CLIENT_CLI_QUERY_QUERY_COMMAND_H_
#define RINGD_CLIENT_CLI_QUERY_QUERY_COMMAND_H_

#include <cstdint>
#include <string>

namespace ringd::cli {

enum class Query : std::uint8_t { kStatus, kGpus, kJobs, kCommunicators, kQueues };

struct QueryOptions {
  Query query = Query::kStatus;
  std::string socket;  // empty: RINGD_SOCKET, else the default
  std::string job_id;  // of the lists; empty: all jobs
  bool json = false;
  bool plan = false;         // of communicators: show what is planned
  bool ended = false;        // of jobs: also those that have ended
  bool wide = false;         // nothing is left out or shortened for a terminal's sake
  double watch_seconds = 0;  // 0: once. JSON is then one line each time
};

// The socket that is meant: what was asked for, RINGD_SOCKET, or the default.
std::string ChooseSocket(const std::string& asked_for);

// Prints to standard output; problems to standard error. The result is an ExitCode: kFailed also if
// a list is empty since engines have not answered.
int QueryCommand(const QueryOptions& options);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_QUERY_COMMAND_H_
