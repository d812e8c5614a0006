#include "daemon/sessions/process_state.h"

#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// The fields of /proc/pid/stat from the state on (field 3); empty if it can't be read. The command name
// before them may hold spaces and parentheses, so they begin after the last ')'.
std::vector<std::string> StatFields(pid_t pid) {
  if (pid <= 0) return {};
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return {};
  const std::size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

constexpr std::size_t kStateField = 0;  // field 3 of proc(5)
constexpr std::size_t kExitCodeField = 52 - 3;

}  // namespace

std::string DescribeExit(const ProcessExit& exit) {
  if (exit.signal != 0) {
    return absl::StrCat("was killed by signal ", exit.signal, " (", ::strsignal(exit.signal), ")");
  }
  return absl::StrCat("exited with code ", exit.exit_code);
}

bool IsStopped(pid_t pid) {
  const auto fields = StatFields(pid);
  return !fields.empty() && (fields[kStateField] == "T" || fields[kStateField] == "t");
}

ProcessExit DecodeWaitStatus(int status) {
  ProcessExit exit;
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  if (WIFEXITED(status)) exit.exit_code = WEXITSTATUS(status);
  return exit;
}

std::optional<ProcessExit> ReadExit(pid_t pid) {
  const auto fields = StatFields(pid);
  if (fields.size() <= kExitCodeField) return std::nullopt;
  if (fields[kStateField] != "Z" && fields[kStateField] != "X") return std::nullopt;
  return DecodeWaitStatus(std::atoi(fields[kExitCodeField].c_str()));
}

}  // namespace ringd
