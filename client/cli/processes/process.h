// Child processes that end with their parent.
#ifndef RINGD_CLIENT_CLI_PROCESSES_PROCESS_H_
#define RINGD_CLIENT_CLI_PROCESSES_PROCESS_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ringd::cli {

struct SpawnOptions {
  std::vector<std::string> arguments;    // the first is looked up in PATH unless it has a slash
  std::vector<std::string> environment;  // NAME=value, all of it
  int standard_input = -1;               // borrowed; each must be open
  int standard_output = -1;
  int standard_error = -1;
  std::optional<rlimit> descriptor_limit;  // nullopt: as here
};

// How a process ended.
struct ProcessEnd {
  int exit_code = 0;  // meaningful if signal is 0
  int signal = 0;

  bool ok() const noexcept { return exit_code == 0 && signal == 0; }
};

// Starts a process that leads a process group of its own, gets SIGKILL when the calling thread's
// process ends, and has all signals at their defaults. Blocks until the program runs or could not
// be started. The result is a child of ours that must be waited for.
//   kNotFound, kPermissionDenied: the program can't be executed; the message says which and why.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

// How the child ended, or nullopt while it runs. It stays a zombie, so that its pid and its process
// group keep meaning it, until Reap.
std::optional<ProcessEnd> PeekEnd(pid_t child);

// Forgets a child that has ended; waits for one that has not.
ProcessEnd Reap(pid_t child);

// "exited with code 3", "was killed by SIGKILL".
std::string Describe(const ProcessEnd& end);

// "SIGKILL"; "signal 77" for a number without a name.
std::string SignalName(int signal);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_PROCESS_H_
