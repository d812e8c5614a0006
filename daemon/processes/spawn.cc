#include "daemon/processes/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr int kDescriptor3 = 3;
constexpr int kHighestOfChild = kProgramDescriptor;
static_assert(kProgramDescriptor == kDescriptor3 + 1);
constexpr char kProgramPath[] = "/proc/self/fd/4";

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

// A descriptor is no good as a source if its number is one that the child's own get before.
absl::StatusOr<int> AboveTheChilds(int fd, UniqueFd& copy) {
  if (fd < 0 || fd > kHighestOfChild) return fd;
  copy.Reset(::fcntl(fd, F_DUPFD_CLOEXEC, kHighestOfChild + 1));
  if (!copy.valid()) return ErrnoStatus(errno, "fcntl");
  return copy.get();
}

absl::Status SpawnStatus(int error, const std::string& program) {
  const std::string what = absl::StrCat("start ", program);
  if (error != EAGAIN) return ErrnoStatus(error, what);
  return absl::ResourceExhaustedError(
      absl::StrCat(what,
                   ": no more processes: the limit of the user, of the control group "
                   "(systemd's TasksMax) or of the machine is reached"));
}

// What the child has as `number`: `from`, or nothing.
void GiveOrClose(posix_spawn_file_actions_t& actions, int from, int number) {
  if (from >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, from, number);
  } else {
    ::posix_spawn_file_actions_addclose(&actions, number);  // no error if there is none
  }
}

}  // namespace

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  Pipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  return pipe;
}

absl::StatusOr<pid_t> Spawn(const SpawnOrder& order) {
  UniqueFd copies[4];
  const auto output = AboveTheChilds(order.standard_output, copies[0]);
  if (!output.ok()) return output.status();
  const auto errors = AboveTheChilds(order.standard_error, copies[1]);
  if (!errors.ok()) return errors.status();
  const auto third = AboveTheChilds(order.descriptor_3, copies[2]);
  if (!third.ok()) return third.status();
  const auto program = AboveTheChilds(order.program, copies[3]);
  if (!program.ok()) return program.status();

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, *output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, *errors, STDERR_FILENO);
  GiveOrClose(actions, *third, kDescriptor3);
  GiveOrClose(actions, *program, kProgramDescriptor);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kHighestOfChild + 1);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (order.has_own_group) flags |= POSIX_SPAWN_SETPGROUP;
  ::posix_spawnattr_setflags(&attributes, static_cast<short>(flags));
  std::vector<char*> argv;
  for (const std::string& argument : order.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  std::vector<char*> variables = Environment();
  pid_t pid = -1;
  const char* const path = order.program < 0 ? argv[0] : kProgramPath;
  const int error = ::posix_spawn(&pid, path, &actions, &attributes, argv.data(), variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return SpawnStatus(error, order.arguments[0]);
  return pid;
}

}  // namespace ringd
