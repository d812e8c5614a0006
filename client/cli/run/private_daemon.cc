#include "client/cli/run/private_daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/cli/query/private_ringds.h"
#include "client/cli/run/file_space.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {
namespace {

constexpr std::chrono::milliseconds kPollInterval{5};
constexpr std::size_t kTailLines = 20;
constexpr int kUsualPlaces = 256;  // max_sessions, unless it is said
// Where a ringd is, and what others call it: settings of the user's own ringd, or in a file that
// RINGD_CONFIG names, which would keep private ones from each other.
constexpr absl::string_view kPlaceSettings[] = {
    "RINGD_PEER_INTERFACE=", "RINGD_ADVERTISED_HOST=", "RINGD_LOG_FILE="};

std::vector<std::string> EnvironmentOfPrivateOnes() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::none_of(std::begin(kPlaceSettings), std::end(kPlaceSettings),
                     [entry](absl::string_view name) { return absl::StartsWith(*entry, name); })) {
      result.emplace_back(*entry);
    }
  }
  // Variables go before what is in a file.
  for (const absl::string_view empty : kPlaceSettings) result.emplace_back(empty);
  return result;
}

// An empty one is as none, as it is for ringd.
bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool IsProgram(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path);
}

}  // namespace

absl::StatusOr<std::string> FindDaemonBinary(const std::string& asked_for) {
  if (!asked_for.empty()) {
    if (IsProgram(asked_for)) return asked_for;
    return absl::NotFoundError(absl::StrCat("'", asked_for, "' is no program"));
  }
  if (const char* variable = std::getenv("RINGD_BINARY");
      variable != nullptr && *variable != '\0') {
    if (IsProgram(variable)) return std::string(variable);
    return absl::NotFoundError(absl::StrCat("RINGD_BINARY='", variable, "' is no program"));
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    // In an installation they are in one folder, in a build tree not.
    for (const char* place : {"ringd", "../../daemon/ringd"}) {
      std::string candidate = (self.parent_path() / place).lexically_normal().string();
      if (IsProgram(candidate)) return candidate;
    }
  }
  const char* path = std::getenv("PATH");
  for (const auto folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    std::string candidate = absl::StrCat(folder, "/ringd");
    if (!folder.empty() && IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(
      "there is no program ringd beside ringctl or in PATH; name it with --ringd or RINGD_BINARY");
}

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(
    const PrivateDaemonOptions& options) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd log(
      ::open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return ErrnoStatus(errno, absl::StrCat("write ", options.log_file));
  SpawnOptions spawn;
  spawn.arguments = {options.binary,
                     "--socket",
                     absl::StrCat(options.folder, "/", kPrivateSocket),
                     "--peer-address",
                     "127.0.0.1:0",
                     "--state-dir",
                     options.state_folder,
                     "--ready-file",
                     absl::StrCat(options.folder, "/ready.json"),
                     "--cluster-key-file",
                     options.cluster_key_file};
  // The node's own configuration is for its service, unless the user says otherwise.
  if (!IsSet("RINGD_CONFIG")) {
    spawn.arguments.insert(spawn.arguments.end(), {"--config", "/dev/null"});
    // A part of all places is kept for root.
    const int places = 2 * options.ranks;
    if (places > kUsualPlaces && std::getenv("RINGD_MAX_SESSIONS") == nullptr) {
      spawn.arguments.insert(spawn.arguments.end(), {"--max-sessions", absl::StrCat(places)});
    }
  }
  if (!options.node_name.empty()) {
    spawn.arguments.insert(spawn.arguments.end(), {"--node-name", options.node_name});
  }
  spawn.environment = EnvironmentOfPrivateOnes();
  // There are no lines between pretended nodes: what would be measured is how busy the machine is.
  if (std::getenv("RINGD_MEASURE_LINKS") == nullptr) {
    spawn.environment.push_back("RINGD_MEASURE_LINKS=false");
  }
  spawn.standard_input = null.get();
  spawn.standard_output = log.get();
  spawn.standard_error = log.get();
  const absl::StatusOr<pid_t> pid = Spawn(spawn);
  if (!pid.ok()) return pid.status();
  return std::unique_ptr<PrivateDaemon>(new PrivateDaemon(options, *pid));
}

PrivateDaemon::PrivateDaemon(const PrivateDaemonOptions& options, pid_t pid)
    : pid_(pid),
      name_(options.node_name.empty() ? "ringd" : absl::StrCat("ringd of ", options.node_name)),
      socket_(absl::StrCat(options.folder, "/", kPrivateSocket)),
      ready_file_(absl::StrCat(options.folder, "/ready.json")),
      log_file_(options.log_file) {}

PrivateDaemon::~PrivateDaemon() { Stop(Clock::now()); }

absl::Status PrivateDaemon::WaitUntilReady(Clock::time_point deadline,
                                           const std::function<bool()>& interrupted) {
  for (;; std::this_thread::sleep_for(kPollInterval)) {
    // Written in one go: what is there is complete.
    if (std::ifstream file(ready_file_); file) {
      const nlohmann::json ready = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
      if (ready.is_object() && ready.contains("peer_address") &&
          ready["peer_address"].is_string()) {
        peer_address_ = ready["peer_address"].get<std::string>();
        return absl::OkStatus();
      }
      return absl::InternalError(
          absl::StrCat("can't read what ", name_, " wrote to ", ready_file_));
    }
    if (const std::optional<ProcessEnd> end = Ended(); end.has_value()) {
      return absl::UnavailableError(
          absl::StrCat(name_, " ", Describe(*end), " while it started", LastWords()));
    }
    if (interrupted()) return absl::CancelledError("interrupted");
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(name_, " did not start in time", LastWords()));
    }
  }
}

std::optional<ProcessEnd> PrivateDaemon::Ended() const {
  return stopped_ ? std::nullopt : PeekEnd(pid_);
}

std::string PrivateDaemon::LogTail() const {
  std::ifstream file(log_file_);
  std::stringstream text;
  text << file.rdbuf();
  std::vector<std::string> lines = absl::StrSplit(text.str(), '\n', absl::SkipEmpty());
  std::string tail;
  for (std::size_t i = lines.size() > kTailLines ? lines.size() - kTailLines : 0; i < lines.size();
       ++i) {
    absl::StrAppend(&tail, "  ", lines[i], "\n");
  }
  return tail;
}

std::string PrivateDaemon::LastWords() const {
  const std::string full =
      DescribeFullDisk(std::filesystem::path(log_file_).parent_path().string());
  const std::string tail = LogTail();
  if (tail.empty()) return absl::StrCat(full, "; it has logged nothing");
  return absl::StrCat(full, ":\n", tail);
}

void PrivateDaemon::RequestStop() {
  if (!stopped_) ::kill(pid_, SIGTERM);
}

void PrivateDaemon::Stop(Clock::time_point deadline) {
  if (stopped_) return;
  RequestStop();
  while (!PeekEnd(pid_).has_value()) {
    if (Clock::now() >= deadline) {
      ::kill(-pid_, SIGKILL);
      break;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  Reap(pid_);
  stopped_ = true;
}

}  // namespace ringd::cli
