// What the kernel tells about another process of this node.
#ifndef RINGD_DAEMON_SESSIONS_PROCESS_STATE_H_
#define RINGD_DAEMON_SESSIONS_PROCESS_STATE_H_

#include <sys/types.h>

#include <optional>
#include <string>

namespace ringd {

// How a process ended.
struct ProcessExit {
  int exit_code = 0;  // meaningful if signal is 0
  int signal = 0;
};

// "was killed by signal 9 (Killed)", "exited with code 1".
std::string DescribeExit(const ProcessExit& exit);

// True if the process exists and is stopped (SIGSTOP, a debugger).
bool IsStopped(pid_t pid);

// How the process ended, while its parent has not collected it; nothing if it runs, has been collected,
// or may not be looked at. See proc(5), /proc/pid/stat, field exit_code.
std::optional<ProcessExit> ReadExit(pid_t pid);

// The exit status in wait(2)'s encoding, decoded.
ProcessExit DecodeWaitStatus(int status);

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_PROCESS_STATE_H_
