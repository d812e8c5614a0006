#include "client/cli/processes/process_groups.h"

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace ringd::cli {
namespace {

// Of a /proc/PID/stat, whose second field, the program's name in parentheses, may have any
// characters: "7 (a) b) S 1 7 ...". Numbers of fields as in proc(5).
bool IsAliveIn(const std::string& stat, const std::set<pid_t>& groups, int signal) {
  constexpr std::size_t kState = 3;
  constexpr std::size_t kGroup = 5;
  constexpr std::size_t kIgnored = 33;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return false;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  const auto field = [&fields](std::size_t number) -> const std::string& {
    return fields[number - kState];
  };
  pid_t group = 0;
  std::uint64_t ignored = 0;
  if (fields.size() <= kIgnored - kState || !absl::SimpleAtoi(field(kGroup), &group) ||
      !absl::SimpleAtoi(field(kIgnored), &ignored)) {
    return false;
  }
  const bool has_ended = field(kState) == "Z" || field(kState) == "X";
  return !has_ended && groups.contains(group) && (ignored >> (signal - 1) & 1) == 0;
}

}  // namespace

bool AnyAlive(const std::set<pid_t>& groups, int signal) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    if (std::isdigit(static_cast<unsigned char>(entry->path().filename().string().front())) == 0) {
      continue;
    }
    std::ifstream file(entry->path() / "stat");
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    if (IsAliveIn(stat, groups, signal)) return true;
  }
  return false;
}

}  // namespace ringd::cli
