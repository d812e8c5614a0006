#include "client/cli/processes/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "client/cli/processes/process.h"
#include "proto/base/errno_status.h"

namespace ringd::cli {
namespace {

constexpr char kWatch = '+';
constexpr char kForget = '-';
constexpr char kQuit = 'q';

// Written and read whole: a pipe keeps up to 512 bytes together.
struct Order {
  char what = 0;
  pid_t group = 0;  // 0: the order is about a folder
  char folder[104] = {};
};

[[noreturn]] void Guard(int pipe) {
  std::set<pid_t> groups;
  std::set<std::string> folders;
  Order order;
  ssize_t got = 0;
  while ((got = ::read(pipe, &order, sizeof(order))) == sizeof(order) || errno == EINTR) {
    if (got != sizeof(order)) {
      errno = 0;
      continue;
    }
    if (order.what == kQuit) ::_exit(0);
    if (order.group != 0) {
      order.what == kWatch ? static_cast<void>(groups.insert(order.group))
                           : static_cast<void>(groups.erase(order.group));
    } else {
      order.what == kWatch ? static_cast<void>(folders.insert(order.folder))
                           : static_cast<void>(folders.erase(order.folder));
    }
    errno = 0;
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  std::error_code ignored;
  for (const std::string& folder : folders) std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "create a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoStatus(errno, "start a process");
  if (pid == 0) {
    // Out of reach of the terminal's signals, and of ringctl's output.
    ::setsid();
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::prctl(PR_SET_NAME, "ringctl-guard");
    const int null = ::open("/dev/null", O_RDWR);
    for (int target = 0; target < 3; ++target) ::dup2(null, target);
    ::dup2(read_end.get(), 3);
    ::close_range(4, ~0u, 0);
    Guard(3);
  }
  return std::unique_ptr<Guardian>(new Guardian(pid, std::move(write_end)));
}

Guardian::Guardian(pid_t pid, UniqueFd pipe) : pid_(pid), pipe_(std::move(pipe)) {}

Guardian::~Guardian() {
  Tell(kQuit, 0, "");
  Reap(pid_);
}

void Guardian::WatchGroup(pid_t group) { Tell(kWatch, group, ""); }
void Guardian::ForgetGroup(pid_t group) { Tell(kForget, group, ""); }
void Guardian::WatchFolder(const std::string& path) { Tell(kWatch, 0, path); }
void Guardian::ForgetFolder(const std::string& path) { Tell(kForget, 0, path); }

void Guardian::Tell(char what, pid_t group, const std::string& folder) const {
  Order order;
  order.what = what;
  order.group = group;
  if (folder.size() >= sizeof(order.folder)) return;
  std::memcpy(order.folder, folder.data(), folder.size());
  // A guardian that was killed guards nothing; the run goes on without.
  while (::write(pipe_.get(), &order, sizeof(order)) < 0 && errno == EINTR) {
  }
}

}  // namespace ringd::cli
