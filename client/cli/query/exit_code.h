// What ringctl's exit status tells a script.
#ifndef RINGD_CLIENT_CLI_QUERY_EXIT_CODE_H_
#define RINGD_CLIENT_CLI_QUERY_EXIT_CODE_H_

namespace ringd::cli {

// After a signal that ended `ringctl run`: 128 + its number, as shells have it.
enum ExitCode : int {
  kDone = 0,
  kFailed =
      1,  // ringd refused; a rank failed; no engine answered a list, or knows anything of that job
  kUsage = 2,        // the command line is wrong
  kUnreachable = 3,  // no ringd answers, or a private one did not start
  kSignalBase = 128,
};

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_QUERY_EXIT_CODE_H_
