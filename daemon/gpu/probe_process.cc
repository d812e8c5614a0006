#include "daemon/gpu/probe_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::size_t kKeptErrors = 2048;
constexpr std::size_t kShownErrors = 300;

struct Pipe {
  UniqueFd reader, writer;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  return pipe;
}

// The environment but what is between systemd and ringd.
std::vector<char*> Environment() {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text(*variable);
    if (!absl::StartsWith(text, "NOTIFY_SOCKET=") && !absl::StartsWith(text, "WATCHDOG_")) {
      variables.push_back(*variable);
    }
  }
  variables.push_back(nullptr);
  return variables;
}

// In a group of its own, with no signal blocked or ignored.
int Spawn(const std::vector<std::string>& arguments, int output, int errors, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables = Environment();
  const int error =
      ::posix_spawn(pid, argv[0], &actions, &attributes, argv.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return error;
}

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
  const int error = Spawn(arguments, output->writer.get(), errors->writer.get(), &probe->pid_);
  if (error != 0) {
    probe->pid_ = -1;
    return ErrnoStatus(error, absl::StrCat("start ", arguments[0]));
  }
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
  std::string line(text.substr(0, kShownErrors));
  for (char& c : line) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return line;
}

}  // namespace ringd
