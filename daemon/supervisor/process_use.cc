#include "daemon/supervisor/process_use.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/proc_stat.h"

namespace ringd {
namespace {

double SecondsOf(const std::vector<std::string>& stat, std::size_t field) {
  std::uint64_t ticks = 0;
  if (field >= stat.size() || !absl::SimpleAtoi(stat[field], &ticks)) return 0;
  return static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

ProcessUse UseOf(pid_t pid) {
  ProcessUse use;
  const std::vector<std::string> stat = ReadProcStat(pid);
  if (stat.empty()) return use;
  use.processor_seconds = SecondsOf(stat, kProcStatUserTime) + SecondsOf(stat, kProcStatSystemTime);
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;
  if (!(file >> total >> resident >> shared)) return use;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  use.resident_bytes = resident * page_bytes;
  use.own_bytes = resident > shared ? (resident - shared) * page_bytes : 0;
  return use;
}

}  // namespace ringd
