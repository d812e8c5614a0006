// How ringd ends, as seen by whoever started it.
#ifndef RINGD_DAEMON_SERVICE_EXIT_CODE_H_
#define RINGD_DAEMON_SERVICE_EXIT_CODE_H_

namespace ringd {

enum ExitCode : int {
  kExitDone = 0,    // stopped by a signal, or did what a flag like --version asked for
  kExitFailed = 1,  // could not serve; the last log line says why
  kExitUsage = 2,   // a flag or the configuration is wrong; standard error says which
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SERVICE_EXIT_CODE_H_
