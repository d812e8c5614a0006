#include "client/core/attach/hydra_job.h"

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/base/proc_stat.h"
#include "proto/base/read_file.h"

namespace ringd::client {
namespace {

// Shells and wrappers stand between a rank and its proxy.
constexpr int kMaxAncestors = 32;
// A proxy's is far shorter.
constexpr std::size_t kMaxCommandLineBytes = 16 * 1024;

// 0: it can't be told.
pid_t ParentOf(const std::string& process_folder) {
  const std::vector<std::string> stat = ReadProcStat(process_folder);
  pid_t parent = 0;
  return stat.size() > kProcStatParent && absl::SimpleAtoi(stat[kProcStatParent], &parent) ? parent
                                                                                           : 0;
}

// The value behind `option`; empty if it is not there.
absl::string_view ValueOf(const std::vector<absl::string_view>& arguments,
                          absl::string_view option) {
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == option) return arguments[i + 1];
  }
  return {};
}

// Nothing if that is no command line of a proxy.
std::optional<std::string> JobOfProxy(absl::string_view command_line) {
  const std::vector<absl::string_view> arguments = absl::StrSplit(command_line, '\0');
  const absl::string_view program = arguments[0].substr(arguments[0].find_last_of('/') + 1);
  if (program != "hydra_pmi_proxy") return {};
  const absl::string_view mpiexec = ValueOf(arguments, "--control-port");
  if (mpiexec.empty()) return {};
  const absl::string_view group = ValueOf(arguments, "--pgid");
  const bool spawned = !group.empty() && group != "0";
  return absl::CEscape(spawned ? absl::StrCat(mpiexec, ".", group) : mpiexec);
}

}  // namespace

std::string HydraJob(pid_t process, const std::string& proc_folder) {
  for (int i = 0; i < kMaxAncestors; ++i) {
    process = ParentOf(absl::StrCat(proc_folder, "/", process));
    if (process <= 1) break;
    const auto line =
        ReadFile(absl::StrCat(proc_folder, "/", process, "/cmdline"), kMaxCommandLineBytes);
    if (!line.ok()) continue;
    if (std::optional<std::string> job = JobOfProxy(*line); job.has_value()) return *std::move(job);
  }
  return "";
}

}  // namespace ringd::client
