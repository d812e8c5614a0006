#include "client/cli/processes/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, between fork and exec: only what is safe beside threads that held locks.
[[noreturn]] void BecomeProgram(const SpawnOptions& options, pid_t parent, char* const* arguments,
                                char* const* environment, int error_pipe) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it ended before the line above
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.descriptor_limit.has_value()) ::setrlimit(RLIMIT_NOFILE, &*options.descriptor_limit);
  const int streams[3] = {options.standard_input, options.standard_output, options.standard_error};
  bool ready = true;
  for (int target = 0; target < 3; ++target) {
    // A stream that is in place already only has to survive exec.
    ready = ready && (streams[target] == target ? ::fcntl(target, F_SETFD, 0) == 0
                                                : ::dup2(streams[target], target) == target);
  }
  if (ready) ::execvpe(arguments[0], arguments, environment);
  const int error = errno;
  if (::write(error_pipe, &error, sizeof(error)) < 0) ::_exit(126);
  ::_exit(127);
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  const std::vector<char*> arguments = Pointers(options.arguments);
  const std::vector<char*> environment = Pointers(options.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "create a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "start a process");
  if (child == 0) {
    BecomeProgram(options, parent, arguments.data(), environment.data(), write_end.get());
  }
  ::setpgid(child, child);  // whichever of the two comes first
  write_end.Reset();
  // Closed by a successful exec.
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(read_end.get(), &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(error)) {
    Reap(child);
    return ErrnoStatus(error, absl::StrCat("run '", options.arguments[0], "'"));
  }
  return child;
}

std::optional<ProcessEnd> PeekEnd(pid_t child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) return ProcessEnd{info.si_status, 0};
  return ProcessEnd{0, info.si_status};
}

ProcessEnd Reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

std::string Describe(const ProcessEnd& end) {
  if (end.signal != 0) return absl::StrCat("was killed by ", SignalName(end.signal));
  return absl::StrCat("exited with code ", end.exit_code);
}

std::string SignalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace ringd::cli
