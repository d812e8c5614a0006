// How a process ended, and in words.
#ifndef RINGD_DAEMON_PROCESSES_PROCESS_END_H_
#define RINGD_DAEMON_PROCESSES_PROCESS_END_H_

#include <string>

namespace ringd {

// How a process ended.
struct ProcessExit {
  int exit_code = 0;  // meaningful if signal is 0
  int signal = 0;

  bool ok() const noexcept { return exit_code == 0 && signal == 0; }
};

// "was killed by signal 9 (Killed)", "exited with code 1".
std::string DescribeExit(const ProcessExit& exit);

// The exit status in wait(2)'s encoding, decoded.
ProcessExit DecodeWaitStatus(int status);

}  // namespace ringd

#endif  // RINGD_DAEMON_PROCESSES_PROCESS_END_H_
