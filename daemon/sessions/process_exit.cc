#include "daemon/sessions/process_exit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/proc_stat.h"

namespace ringd {
namespace {

// struct pidfd_info of linux/pidfd.h in its first published size, which later kernels take as well:
// the size is part of the request's number. Debian 12's headers are older than it.
struct PidFdInfo {
  std::uint64_t mask;  // in: what is asked for; out: what was answered
  std::uint64_t cgroup_id;
  std::uint32_t pid;
  std::uint32_t tgid;
  std::uint32_t ppid;
  std::uint32_t users_and_groups[8];
  std::int32_t exit_code;  // as wait(2) has it; unused before Linux 6.15
};
static_assert(sizeof(PidFdInfo) == 64);
static_assert(offsetof(PidFdInfo, exit_code) == 60);

constexpr unsigned long kPidFdGetInfo = _IOWR(0xFF, 11, PidFdInfo);
constexpr std::uint64_t kPidFdInfoExit = 1U << 3;

bool HasEnded(int pidfd) {
  pollfd poll{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) == 1 && (poll.revents & (POLLIN | POLLHUP)) != 0;
}

// While that is true no other process has its pid.
bool IsUnreaped(int pidfd) {
  return ::syscall(SYS_pidfd_send_signal, pidfd, 0, nullptr, 0) == 0 || errno != ESRCH;
}

// Where the kernel hides the exit code of a process it hides its links as well, and says so.
bool MayLookAt(pid_t pid) {
  char target[1];
  const ssize_t length =
      ::readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), target, sizeof(target));
  // A process that has ended has no executable any more.
  return length >= 0 || errno == ENOENT;
}

std::optional<ProcessExit> FromProc(pid_t pid, int pidfd) {
  if (pid <= 0) return std::nullopt;
  const std::vector<std::string> fields = ReadProcStat(pid);
  if (fields.size() <= kProcStatExitCode) return std::nullopt;
  if (fields[kProcStatState] != "Z" && fields[kProcStatState] != "X") return std::nullopt;
  const int status = std::atoi(fields[kProcStatExitCode].c_str());
  // The 0 is real if we may look, and that stays so once a process is a zombie.
  const bool shown = status != 0 || MayLookAt(pid);
  // Asked last: all of it was about this process if it still has its pid.
  if (!shown || !IsUnreaped(pidfd)) return std::nullopt;
  return DecodeWaitStatus(status);
}

}  // namespace

ExitInquiry::ExitInquiry(pid_t pid, int pidfd)
    : pid_(pid), pidfd_(pidfd < 0 ? -1 : ::fcntl(pidfd, F_DUPFD_CLOEXEC, 0)) {}

ExitInquiry::State ExitInquiry::Look() {
  if (exit_.has_value()) return State::kKnown;
  if (!pidfd_.valid() || !HasEnded(pidfd_.get())) return State::kRuns;
  exit_ = FromProc(pid_, pidfd_.get());
  if (exit_.has_value()) return State::kKnown;
  PidFdInfo info{};
  info.mask = kPidFdInfoExit;
  // Kernels without it, or a process of a foreign pid namespace.
  if (::ioctl(pidfd_.get(), kPidFdGetInfo, &info) != 0) return State::kHidden;
  if ((info.mask & kPidFdInfoExit) == 0) return State::kEnded;
  exit_ = DecodeWaitStatus(info.exit_code);
  return State::kKnown;
}

}  // namespace ringd
