#include "daemon/processes/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/count_descriptors.h"

namespace ringd {
namespace {

using Catch::Contains;

// All that the child writes, until it ends.
std::string ReadAll(int pipe) {
  std::string text;
  char piece[4096];
  for (pollfd poll{pipe, POLLIN, 0}; ::poll(&poll, 1, 20'000) == 1;) {
    const ssize_t length = ::read(pipe, piece, sizeof piece);
    if (length <= 0) return text;
    text.append(piece, static_cast<std::size_t>(length));
  }
  return text + " (and went on for 20 s)";
}

struct Run {
  std::string output;
  int status = -1;
};

Run RunShell(const std::string& script, int descriptor_3 = -1, bool has_own_group = false) {
  auto pipe = MakePipe();
  REQUIRE(pipe.ok());
  const auto pid = Spawn({.arguments = {"/bin/sh", "-c", script},
                          .standard_output = pipe->writer.get(),
                          .standard_error = pipe->writer.get(),
                          .descriptor_3 = descriptor_3,
                          .has_own_group = has_own_group});
  REQUIRE(pid.ok());
  pipe->writer.Reset();
  Run run;
  run.output = ReadAll(pipe->reader.get());
  REQUIRE(::waitpid(*pid, &run.status, 0) == *pid);
  return run;
}

TEST_CASE("Spawn: the child has the descriptors that it was given, and no others") {
  const int open_here = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  auto given = MakePipe();
  REQUIRE(given.ok());
  REQUIRE(::write(given->writer.get(), "hello\n", 6) == 6);
  given->writer.Reset();
  const std::size_t before = CountDescriptors();
  CHECK(RunShell("readlink /proc/self/fd/0; echo error >&2; echo /proc/$$/fd/*; head -n 1 <&3",
                 given->reader.get())
            .output.find("/dev/null\nerror\n") == 0);
  CHECK(CountDescriptors() == before);
  // ls has the folder that it reads, too.
  CHECK(RunShell("ls /proc/self/fd | wc -l", given->reader.get()).output == "5\n");
  CHECK(RunShell("ls /proc/self/fd | wc -l").output == "4\n");
  ::close(open_here);
}

TEST_CASE("Spawn: a descriptor whose number the child uses otherwise comes to its place") {
  auto given = MakePipe();
  REQUIRE(given.ok());
  REQUIRE(::write(given->writer.get(), "through\n", 8) == 8);
  given->writer.Reset();
  // As in a ringd that was started without a standard input.
  const int standard_input = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 100);
  REQUIRE(::dup2(given->reader.get(), STDIN_FILENO) == STDIN_FILENO);
  const Run run = RunShell("head -n 1 <&3; readlink /proc/self/fd/0", STDIN_FILENO);
  if (standard_input >= 0) {
    ::dup2(standard_input, STDIN_FILENO);
    ::close(standard_input);
  } else {
    ::close(STDIN_FILENO);
  }
  CHECK(run.output == "through\n/dev/null\n");
}

TEST_CASE("Spawn: no signal is blocked or ignored, and nothing of systemd's is passed on") {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  ::setenv("NOTIFY_SOCKET", "/n", 1);
  ::setenv("WATCHDOG_USEC", "5", 1);
  const Run run = RunShell(
      // SIGPIPE is bit 12; glibc ignores two signals of its own.
      "grep -c 'SigBlk:.*[1-9a-f]' /proc/self/status; "
      "grep -c 'SigIgn:.*[13579bdf]...$' /proc/self/status; "
      "env | grep -c 'NOTIFY\\|WATCHDOG'");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGPIPE, handler);
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("WATCHDOG_USEC");
  CHECK(run.output == "0\n0\n0\n");
}

TEST_CASE("Spawn: the child stays in our process group, or has one of its own") {
  const std::string ask = "set -- $(cat /proc/self/stat); echo $5 $$";
  CHECK_THAT(RunShell(ask).output, Catch::StartsWith(std::to_string(::getpgrp()) + " "));
  const std::string own = RunShell(ask, -1, true).output;
  CHECK(own.substr(0, own.find(' ')) + "\n" == own.substr(own.find(' ') + 1));
}

TEST_CASE("Spawn: a program that is open is run, a script too, by its own name") {
  char path[] = "/tmp/ringd-XXXXXX";
  const int script = ::mkstemp(path);
  REQUIRE(::fchmod(script, 0700) == 0);
  REQUIRE(::write(script, "#!/bin/sh\necho $1 $#\n", 22) == 22);
  ::close(script);
  for (const std::string& file : {std::string("/bin/echo"), std::string(path)}) {
    const int program = ::open(file.c_str(), O_PATH | O_CLOEXEC);
    REQUIRE(program >= 0);
    if (file == path) ::unlink(path);
    auto pipe = MakePipe();
    REQUIRE(pipe.ok());
    const auto pid = Spawn({.arguments = {"/no/such/path", "1"},
                            .program = program,
                            .standard_output = pipe->writer.get(),
                            .standard_error = pipe->writer.get()});
    ::close(program);
    REQUIRE(pid.ok());
    pipe->writer.Reset();
    CHECK(ReadAll(pipe->reader.get()) == (file == path ? "1 1\n" : "1\n"));
    int status = -1;
    REQUIRE(::waitpid(*pid, &status, 0) == *pid);
    CHECK(status == 0);
  }
}

TEST_CASE("Spawn: a program that is missing or may not be run is an error with its path") {
  const auto missing = Spawn({.arguments = {"/no/such/program"}});
  CHECK(absl::IsNotFound(missing.status()));
  CHECK_THAT(std::string(missing.status().message()), Contains("/no/such/program"));
  const auto refused = Spawn({.arguments = {"/etc/passwd"}});
  CHECK(absl::IsPermissionDenied(refused.status()));
}

TEST_CASE("Spawn: where no more processes are allowed the error says so") {
  // The limit is not root's: as a user of its own, in a child.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(54'321, 54'321, 54'321) != 0) ::_exit(10);
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(11);
    const auto pid = Spawn({.arguments = {"/bin/true"}});
    if (pid.ok()) ::_exit(12);
    if (!absl::IsResourceExhausted(pid.status())) ::_exit(13);
    const std::string text(pid.status().message());
    ::_exit(text.find("no more processes") != std::string::npos ? 0 : 14);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace ringd
