// Starts the ranks of one run, relays their output and sees them end.
#ifndef RINGD_CLIENT_CLI_PROCESSES_SUPERVISOR_H_
#define RINGD_CLIENT_CLI_PROCESSES_SUPERVISOR_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/processes/process.h"
#include "proto/base/clock.h"

namespace ringd::cli {

struct RankCommand {
  int rank = 0;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
};

struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  ProcessEnd end;
  bool signalled_by_us = false;  // it ended after it was told to
};

struct RunOutcome {
  enum class Cause {
    kAllDone,     // every rank exited with 0
    kRankFailed,  // ends[first_failure] did not
    kTimeLimit,   // the run took longer than it may
    kSignal,      // ringctl received `signal`
    kOutputGone,  // nobody reads ringctl's output any more, or it can't be written
  };
  Cause cause = Cause::kAllDone;
  int signal = 0;
  int output_error = 0;       // of kOutputGone: as OutputSink::error
  std::vector<RankEnd> ends;  // in the order in which they ended
  std::optional<std::size_t> first_failure;
};

struct SupervisorOptions {
  bool prefix = true;       // "[rank] " before each line
  std::string log_folder;   // rank-N.out and rank-N.err in it; empty: none
  int standard_input = -1;  // for rank 0; the others read /dev/null
  int standard_output = 1;
  int standard_error = 2;
  // Between a failure and SIGTERM, so that the other ranks can report theirs; and from SIGTERM to
  // SIGKILL.
  std::chrono::milliseconds grace{5000};
  std::optional<Clock::time_point> time_limit;
  std::optional<rlimit> descriptor_limit;  // of the ranks; nullopt: as here

  // Called on the calling thread; must not block.
  std::function<void(pid_t group)> on_started = [](pid_t) {};
  std::function<void(const RankEnd&)> on_failure = [](const RankEnd&) {};  // not after SIGTERM
  // Of a rank that ended with 0 when others have gone on for some time, a few times; of the first
  // ones only.
  std::function<void(const RankEnd&)> on_early_end = [](const RankEnd&) {};
};

// Runs all commands at once and returns when they and what they started in their process groups
// have ended. Needs PrepareSignals (signals.h). A signal is passed on to the ranks; another
// SIGINT kills them, SIGTERM too if it comes a second or more after the first one, SIGHUP never.
// What ranks have left in their groups has `grace` to end after they were told to, and half a
// second if nobody was; what ignores that is killed at once.
//   Error: a rank could not be started; those that had been are ended.
absl::StatusOr<RunOutcome> RunRanks(const std::vector<RankCommand>& commands,
                                    const SupervisorOptions& options);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_PROCESSES_SUPERVISOR_H_
