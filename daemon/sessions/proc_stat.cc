#include "daemon/sessions/proc_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// Longer than the kernel's line ever is: about 50 numbers and a name of 64 bytes.
constexpr std::size_t kLineBytes = 4096;

// Empty if it can't be read. No std::ifstream: its buffer throws where the kernel refuses to read, as it does (ESRCH) once a
// process has been reaped whose file is open.
std::string ReadLine(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  std::string text(kLineBytes, '\0');
  ssize_t length = 0;
  do {
    length = ::read(file.get(), text.data(), text.size());
  } while (length < 0 && errno == EINTR);
  text.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return text;
}

}  // namespace

std::vector<std::string> ReadProcStat(pid_t pid) {
  if (pid <= 0) return {};
  // The command's name may hold spaces, parentheses and line ends: the fields begin after the last ')'.
  const std::string text = ReadLine(absl::StrCat("/proc/", pid, "/stat"));
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
