#include "daemon/gpu/probe_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/processes/spawn.h"
#include "proto/base/errno_status.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

constexpr std::size_t kKeptErrors = 2048;
constexpr std::size_t kShownErrors = 300;

// Appends what there is, until `text` has more than `most`. Closes the pipe at its end.
void Drain(UniqueFd& pipe, std::size_t most, std::string& text) {
  char piece[4096];
  while (pipe.valid() && text.size() <= most) {
    const ssize_t length = ::read(pipe.get(), piece, sizeof piece);
    if (length > 0) {
      text.append(piece, static_cast<std::size_t>(length));
    } else if (length == 0) {
      pipe.Reset();
    } else if (errno != EINTR) {
      return;
    }
  }
}

std::string Seconds(Clock::duration duration) {
  const auto rounded = std::chrono::round<std::chrono::milliseconds>(duration);
  return absl::StrCat(std::chrono::duration<double>(rounded).count(), " s");
}

absl::Status EndOf(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) {
    if (info.si_status == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("ended with exit code ", info.si_status));
  }
  const char* const name = ::sigabbrev_np(info.si_status);
  return absl::AbortedError(absl::StrCat("was ended by signal ", info.si_status,
                                         name == nullptr ? "" : absl::StrCat(" (SIG", name, ")")));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeProcess>> ProbeProcess::Start(
    const std::vector<std::string>& arguments, Clock::time_point deadline) {
  auto output = MakePipe();
  if (!output.ok()) return output.status();
  auto errors = MakePipe();
  if (!errors.ok()) return errors.status();
  std::unique_ptr<ProbeProcess> probe(new ProbeProcess);
  probe->started_ = Clock::now();
  probe->deadline_ = deadline;
  // In a group of its own, so that it can be ended with all that it has started.
  const absl::StatusOr<pid_t> pid = Spawn({.arguments = arguments,
                                           .standard_output = output->writer.get(),
                                           .standard_error = errors->writer.get(),
                                           .has_own_group = true});
  if (!pid.ok()) return pid.status();
  probe->pid_ = *pid;
  // Its number is its own until it is reaped, which nobody else does.
  probe->process_.Reset(static_cast<int>(::syscall(SYS_pidfd_open, probe->pid_, 0)));
  if (!probe->process_.valid()) return ErrnoStatus(errno, "pidfd_open");
  probe->output_pipe_ = std::move(output->reader);
  probe->error_pipe_ = std::move(errors->reader);
  return probe;
}

ProbeProcess::~ProbeProcess() {
  if (pid_ < 0 || is_reaped_) return;
  ::kill(-pid_, SIGKILL);
  pollfd end{process_.get(), POLLIN, 0};
  if (!is_stuck_) ::poll(&end, 1, static_cast<int>(kKillPatience.count()));
  Reap();
}

std::array<int, 3> ProbeProcess::descriptors() const {
  return {process_.get(), output_pipe_.get(), error_pipe_.get()};
}

Clock::time_point ProbeProcess::next() const {
  return killed_.has_value() ? *killed_ + kKillPatience : deadline_;
}

bool ProbeProcess::Advance(Clock::time_point now) {
  const bool has_ended = Reap();
  Drain(output_pipe_, kMostOutput, output_);
  Drain(error_pipe_, errors_.size() + kKeptErrors, errors_);
  if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  if (has_ended || is_stuck_) return true;
  if (!killed_.has_value() && output_.size() > kMostOutput) {
    Kill(absl::InternalError(absl::StrCat("printed more than ", kMostOutput, " bytes")), now);
  } else if (!killed_.has_value() && now >= deadline_) {
    Kill(absl::DeadlineExceededError(
             absl::StrCat("did not end within ", Seconds(deadline_ - started_), " and was killed")),
         now);
  } else if (killed_.has_value() && now >= *killed_ + kKillPatience) {
    is_stuck_ = true;
    end_ = absl::Status(why_killed_.code(), absl::StrCat(why_killed_.message(), ", but pid ", pid_,
                                                         " hangs in the kernel and stays"));
  }
  return is_stuck_;
}

void ProbeProcess::Kill(absl::Status why, Clock::time_point now) {
  ::kill(-pid_, SIGKILL);
  killed_ = now;
  why_killed_ = std::move(why);
}

// Whether it has ended; then its end is known.
bool ProbeProcess::Reap() {
  if (is_reaped_) return true;
  siginfo_t info{};
  const auto id = static_cast<id_t>(pid_);
  if (::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return false;
  }
  // What it has started and left behind; before its number may mean another group.
  ::kill(-pid_, SIGKILL);
  ::waitid(P_PID, id, &info, WEXITED | WNOHANG);
  is_reaped_ = true;
  is_stuck_ = false;
  end_ = killed_.has_value() ? why_killed_ : EndOf(info);
  process_.Reset();
  return true;
}

std::string ProbeProcess::LastError() const {
  absl::string_view text = absl::StripTrailingAsciiWhitespace(errors_);
  text = text.substr(text.rfind('\n') + 1);
  return std::string(CutToLength(CleanLine(text), kShownErrors));
}

}  // namespace ringd
