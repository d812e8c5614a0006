#include "daemon/sessions/proc_stat.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace ringd {

std::vector<std::string> ReadProcStat(pid_t pid) {
  if (pid <= 0) return {};
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  // The command's name may hold spaces, parentheses and line ends: the fields begin after the last ')'.
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(text.substr(end + 1));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

bool IsStopped(pid_t pid) {
  const auto fields = ReadProcStat(pid);
  return !fields.empty() && (fields[kProcStatState] == "T" || fields[kProcStatState] == "t");
}

}  // namespace ringd
