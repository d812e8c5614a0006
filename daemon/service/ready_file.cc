#include "daemon/service/ready_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/version.h"
#include "proto/base/errno_status.h"

namespace ringd {

void ReadyFile::RemoveStale(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json object = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("pid") || !object["pid"].is_number_integer()) return;
  const auto pid = object["pid"].get<std::int64_t>();
  // In a container each ringd may have the same pid.
  const bool is_gone =
      pid == ::getpid() || (pid > 0 && pid <= std::numeric_limits<pid_t>::max() &&
                            ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
  if (is_gone) ::unlink(path.c_str());
}

absl::StatusOr<ReadyFile> ReadyFile::Write(const std::string& path, const std::string& socket,
                                           const std::string& peer_address,
                                           const std::string& node_name) {
  if (path.empty()) return ReadyFile("");
  nlohmann::ordered_json object;
  object["pid"] = ::getpid();
  object["socket"] = socket;
  object["peer_address"] = peer_address;
  object["node_name"] = node_name;
  object["version"] = kRingdVersion;
  const std::string draft = absl::StrCat(path, ".", ::getpid());
  std::ofstream file(draft, std::ios::trunc);
  file << object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  file.close();
  ::chmod(draft.c_str(), 0644);
  if (!file || std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    return ErrnoStatus(error, absl::StrCat("ready_file ", path));
  }
  return ReadyFile(path);
}

ReadyFile::ReadyFile(ReadyFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

ReadyFile::~ReadyFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

}  // namespace ringd
