#include "daemon/service/start_check.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "daemon/attach/admission.h"
#include "daemon/config/host_port.h"
#include "daemon/config/link_state.h"
#include "daemon/supervisor/engine_program.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// A new file could be made in it.
absl::Status CheckFolder(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return ErrnoStatus(errno, folder);
  if (!S_ISDIR(info.st_mode)) return ErrnoStatus(ENOTDIR, folder);
  // Root may write in these, and yet nobody makes a file there.
  struct statfs system {};
  if (::statfs(folder.c_str(), &system) == 0 &&
      (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC)) {
    return ErrnoStatus(EROFS, folder);
  }
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return ErrnoStatus(errno, folder);
  }
  return absl::OkStatus();
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "/" : folder;
}

// Lines can be appended to it.
absl::Status CheckLogFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.valid()) return absl::OkStatus();
  return errno == ENOENT ? CheckFolder(FolderOf(path)) : ErrnoStatus(errno, path);
}

absl::Status CheckSocket(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("a socket's path has at most ",
                                                   sizeof(sockaddr_un{}.sun_path) - 1,
                                                   " bytes, not ", path.size()));
  }
  return CheckFolder(FolderOf(path));
}

absl::Status CheckReadyFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return ErrnoStatus(EISDIR, path);
  return CheckFolder(FolderOf(path));
}

}  // namespace

absl::Status CheckPeerAddress(const std::string& address) {
  const absl::StatusOr<HostPort> peer = ParseHostPort(address);
  if (!peer.ok()) return peer.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const std::string port = absl::StrCat(peer->port);
  if (const int error = getaddrinfo(peer->host.c_str(), port.c_str(), &hints, &list); error != 0) {
    return absl::NotFoundError(absl::StrCat("'", peer->host, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const UniqueFd fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.valid()) {
      // As ringd does: a port that was in use a moment ago is free.
      const int yes = 1;
      ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
      if (::bind(fd.get(), entry->ai_addr, entry->ai_addrlen) == 0 || errno == EADDRINUSE) {
        return absl::OkStatus();
      }
    }
    error = errno;
  }
  if (error == EACCES) return ErrnoStatus(error, absl::StrCat("listen on port ", port));
  return ErrnoStatus(error, absl::StrCat("no interface of this machine has '", peer->host, "'"));
}

absl::Status CheckStateDir(const std::string& state_dir) {
  if (state_dir.empty()) return absl::OkStatus();
  struct stat info {};
  // ringd makes the folder itself, but none above it.
  const bool there = ::stat(state_dir.c_str(), &info) == 0 || errno != ENOENT;
  const absl::Status status = CheckFolder(there ? state_dir : FolderOf(state_dir));
  if (status.ok()) return status;
  return absl::FailedPreconditionError(status.message());
}

std::vector<std::string> FindStartProblems(const Config& config) {
  std::vector<std::string> problems;
  const auto add = [&](const char* setting, const std::string& value, const absl::Status& status) {
    if (status.ok()) return;
    problems.push_back(absl::StrCat(setting, " = \"", value, "\": ", status.message()));
  };
  if (absl::Status status = Admission::Create(config).status(); !status.ok()) {
    problems.emplace_back(status.message());
  }
  if (absl::Status status = EngineProgram::Open(config).status(); !status.ok()) {
    problems.emplace_back(status.message());
  }
  add("peer_address", config.peer_address, CheckPeerAddress(config.peer_address));
  const Config defaults;
  if (config.socket != defaults.socket) {
    add("socket", config.socket, CheckSocket(config.socket));
  }
  if (config.state_dir != defaults.state_dir) {
    add("state_dir", config.state_dir, CheckStateDir(config.state_dir));
  }
  if (!config.log_file.empty()) add("log_file", config.log_file, CheckLogFile(config.log_file));
  if (!config.ready_file.empty()) {
    add("ready_file", config.ready_file, CheckReadyFile(config.ready_file));
  }
  return problems;
}

std::vector<std::string> FindStartWarnings(const Config& config) {
  std::vector<std::string> warnings;
  const std::string shared = DescribeSharedNetworks(NetworksOf(LinksOf(config)));
  if (!shared.empty()) {
    warnings.push_back(absl::StrCat(
        "peer_interface and data_interfaces: ", shared,
        ": without rules that go by the source address the kernel sends all through one of them"));
  }
  return warnings;
}

}  // namespace ringd
