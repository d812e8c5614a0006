#include "daemon/supervisor/engine_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "daemon/processes/spawn.h"
#include "daemon/supervisor/engine_logs.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

absl::Status CannotStart(const absl::Status& why) {
  return {why.code(), absl::StrCat("the engine can't be started: ", why.message())};
}

// Without a pidfd there is nothing to wait with: ends what was just begun.
void Discard(pid_t pid) {
  ::kill(pid, SIGKILL);
  const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
  for (int i = 0; i < EngineProcess::kEndPatience.count(); ++i) {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return;
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

std::string DescribeEngineEnd(const EngineEnd& end) {
  return absl::StrCat(DescribeExit(end.exit), end.dumped_core ? " and dumped core" : "");
}

absl::StatusOr<std::unique_ptr<EngineProcess>> EngineProcess::Start(
    const EngineProgram& program, const std::vector<std::string>& arguments, int channel) {
  absl::StatusOr<EngineLogs::Ends> log = EngineLogs::MakeEnds();
  if (!log.ok()) return CannotStart(log.status());
  SpawnOrder order{.arguments = {program.path()},
                   .program = program.file(),
                   .standard_output = log->writer.get(),
                   .standard_error = log->writer.get(),
                   .descriptor_3 = channel};
  order.arguments.insert(order.arguments.end(), arguments.begin(), arguments.end());
  const absl::StatusOr<pid_t> pid = Spawn(order);
  if (!pid.ok()) return CannotStart(pid.status());
  // Its number is its own until it is reaped, which nobody else does.
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
  if (!pidfd.valid()) {
    const int error = errno;
    Discard(*pid);
    return CannotStart(ErrnoStatus(error, "pidfd_open"));
  }
  return std::unique_ptr<EngineProcess>(
      new EngineProcess(*pid, std::move(pidfd), std::move(log->reader)));
}

EngineProcess::EngineProcess(pid_t pid, UniqueFd pidfd, UniqueFd log)
    : pid_(pid), pidfd_(std::move(pidfd)), log_(std::move(log)) {}

EngineProcess::~EngineProcess() {
  if (Reap()) return;
  End();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      *killed_at_ + kEndPatience - Clock::now());
  pollfd end{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  ::poll(&end, 1, static_cast<int>(std::max(left, std::chrono::milliseconds(0)).count()));
  if (Reap()) return;
  LogError(absl::StrCat("the engine with pid ", pid_, " was killed and hangs in the kernel"));
}

void EngineProcess::End() noexcept {
  if (end_.has_value()) return;
  if (!killed_at_.has_value()) killed_at_ = Clock::now();
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

bool EngineProcess::Reap() noexcept {
  if (end_.has_value()) return true;
  siginfo_t info{};
  const auto pidfd = static_cast<id_t>(pidfd_.get());
  if (::waitid(P_PIDFD, pidfd, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return false;
  EngineEnd end;
  if (info.si_code == CLD_EXITED) {
    end.exit.exit_code = info.si_status;
  } else {
    end.exit.signal = info.si_status;
    end.dumped_core = info.si_code == CLD_DUMPED;
  }
  end_ = end;
  return true;
}

}  // namespace ringd
