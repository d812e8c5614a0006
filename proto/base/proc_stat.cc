#include "proto/base/proc_stat.h"

#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/base/read_file.h"

namespace ringd {
namespace {

// Longer than the kernel's line ever is: about 50 numbers and a name of 64 bytes.
constexpr std::size_t kLineBytes = 4096;

}  // namespace

std::vector<std::string> ReadProcStat(const std::string& folder) {
  const auto text = ReadFile(folder + "/stat", kLineBytes);
  if (!text.ok()) return {};
  // The command's name may hold spaces, parentheses and line ends: the fields begin after the last
  // ')'.
  const std::size_t end = text->rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(text->substr(end + 1));
  return {std::istream_iterator<std::string>(rest), std::istream_iterator<std::string>()};
}

std::vector<std::string> ReadProcStat(pid_t pid) {
  if (pid <= 0) return {};
  return ReadProcStat(absl::StrCat("/proc/", pid));
}

bool IsRunnable(pid_t pid) {
  const auto fields = ReadProcStat(pid);
  return !fields.empty() && fields[kProcStatState] == "R";
}

bool IsStopped(pid_t pid) {
  const auto fields = ReadProcStat(pid);
  return !fields.empty() && (fields[kProcStatState] == "T" || fields[kProcStatState] == "t");
}

}  // namespace ringd
