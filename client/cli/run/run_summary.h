// How a run ended, in words.
#ifndef RINGD_CLIENT_CLI_RUN_RUN_SUMMARY_H_
#define RINGD_CLIENT_CLI_RUN_RUN_SUMMARY_H_

#include <string>

#include "client/cli/processes/supervisor.h"

namespace ringd::cli {

// Lines beginning with "ringctl: ", the first cause first; empty if all went well.
// `time_limit_seconds`: what the user gave, for kTimeLimit.
std::string SummarizeRun(const RunOutcome& outcome, double time_limit_seconds);

// The exit status that says the same.
int ExitCodeOf(const RunOutcome& outcome);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_RUN_RUN_SUMMARY_H_
