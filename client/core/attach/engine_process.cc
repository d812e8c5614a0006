#include "client/core/attach/engine_process.h"

#include <dirent.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/proc_stat.h"

namespace ringd::client {
namespace {

constexpr char kEngineThread[] = "ringd-progress";

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The folder of the progress thread; empty if there is none.
std::string EngineFolder(pid_t pid) {
  const std::string tasks = absl::StrCat("/proc/", pid, "/task/");
  const auto close = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close)> folder(::opendir(tasks.c_str()), close);
  if (folder == nullptr) return "";
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string task = absl::StrCat(tasks, entry->d_name, "/");
    if (entry->d_name[0] != '.' && FirstLine(task + "comm") == kEngineThread) return task;
  }
  return "";
}

}  // namespace

std::string DescribeEngine(pid_t pid) {
  if (pid <= 0) return "";
  const std::string folder = EngineFolder(pid);
  if (folder.empty()) return "";
  const std::vector<std::string> stat = ReadProcStat(folder);
  if (stat.empty()) return "";
  switch (stat[kProcStatState].front()) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in an uninterruptible sleep";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "dead";
    default:
      return "";
  }
}

}  // namespace ringd::client
