#include "client/cli/query/private_ringds.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/unix_socket.h"

namespace ringd::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostSockets = 16;
// A listener's queue takes a connection at once, whatever the listener does.
constexpr std::chrono::milliseconds kConnectTimeout{200};

// No link, and without the permissions of `forbidden`.
bool IsOwn(const fs::path& path, mode_t type, mode_t forbidden = 0) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && (status.st_mode & S_IFMT) == type &&
         status.st_uid == ::geteuid() && (status.st_mode & forbidden) == 0;
}

// Nobody else may put anything into it.
bool IsOwnFolder(const fs::path& path) { return IsOwn(path, S_IFDIR, S_IWGRP | S_IWOTH); }

bool IsRunName(std::string_view name) {
  constexpr std::string_view kTemplate = kPrivateName;
  const std::string_view fixed = kTemplate.substr(0, kTemplate.find('X'));
  return name.size() == kTemplate.size() && name.starts_with(fixed);
}

bool IsNumber(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

// The folders in `folder` that are this user's and have such names; none if it can't be read.
std::vector<fs::path> OwnFolders(const fs::path& folder, bool (*has_name)(std::string_view)) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (has_name(entry->path().filename().native()) && IsOwnFolder(entry->path())) {
      found.push_back(entry->path());
    }
  }
  return found;
}

}  // namespace

std::vector<std::string> PrivateSockets(const std::string& parent) {
  std::vector<std::string> sockets;
  for (const fs::path& run : OwnFolders(parent, IsRunName)) {
    for (const fs::path& node : OwnFolders(run, IsNumber)) {
      const fs::path socket = node / kPrivateSocket;
      if (!IsOwn(socket, S_IFSOCK)) continue;
      if (!ConnectUnix(socket.string(), Clock::now() + kConnectTimeout).ok()) continue;
      sockets.push_back(socket.string());
      if (sockets.size() == kMostSockets) break;
    }
    if (sockets.size() == kMostSockets) break;
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

std::string DescribePrivateRingds(const std::string& asked) {
  std::vector<std::string> sockets = PrivateSockets(kPrivateParent);
  std::erase(sockets, asked);
  if (sockets.empty()) return "";
  return absl::StrCat("A ringd that ringctl run has started for you answers at --socket ",
                      absl::StrJoin(sockets, ", or at --socket "));
}

}  // namespace ringd::cli
