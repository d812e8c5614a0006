#include "daemon/processes/process_end.h"

#include <sys/wait.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ringd {

std::string DescribeExit(const ProcessExit& exit) {
  if (exit.signal != 0) {
    return absl::StrCat("was killed by signal ", exit.signal, " (", ::strsignal(exit.signal), ")");
  }
  return absl::StrCat("exited with code ", exit.exit_code);
}

ProcessExit DecodeWaitStatus(int status) {
  ProcessExit exit;
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.exit_code = WEXITSTATUS(status);
  return exit;
}

}  // namespace ringd
