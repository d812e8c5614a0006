// How a process of this node ended, as far as the kernel shows it to ringd.
#ifndef RINGD_DAEMON_SESSIONS_PROCESS_EXIT_H_
#define RINGD_DAEMON_SESSIONS_PROCESS_EXIT_H_

#include <sys/types.h>

#include <optional>

#include "daemon/processes/process_end.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Asks the kernel how one process ended; its parent need not tell.
//
// The kernel shows that in two places. /proc/PID/stat has it until the parent has reaped the
// process, for the process's own user and for CAP_SYS_PTRACE; all others read a 0 there, which this
// class does not believe. A pidfd has it after the parent has reaped the process, for everybody
// (Linux 6.15).
//
// Thread safety: none.
// Ownership: owns a duplicate of the pidfd, so that the session may go.
// Invariant: what is told was proved; once told it stays.
class ExitInquiry {
 public:
  enum class State {
    kRuns,    // or nobody can say whether it does
    kEnded,   // how is not visible yet: the parent has not reaped it
    kHidden,  // it has ended; how will never be visible
    kKnown,
  };

  // `pid`: as this process sees it, 0 if it does not. `pidfd` < 0: there is none, and the state
  // stays kRuns.
  ExitInquiry(pid_t pid, int pidfd);

  // Never waits. Ask again while it is kRuns or kEnded.
  State Look();
  // Set in the state kKnown.
  const std::optional<ProcessExit>& exit() const noexcept { return exit_; }

 private:
  pid_t pid_;
  UniqueFd pidfd_;
  std::optional<ProcessExit> exit_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_PROCESS_EXIT_H_
