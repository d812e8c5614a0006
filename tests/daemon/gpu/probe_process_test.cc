#include "daemon/gpu/probe_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "proto/base/clock.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<ProbeProcess> StartShell(const std::string& script,
                                         Clock::duration patience = seconds(20)) {
  auto probe = ProbeProcess::Start({"/bin/sh", "-c", script}, Clock::now() + patience);
  REQUIRE(probe.ok());
  return *std::move(probe);
}

// As a finder does it.
void WaitForEnd(ProbeProcess& probe) {
  while (!probe.Advance(Clock::now())) {
    pollfd events[3];
    const auto descriptors = probe.descriptors();
    for (int i = 0; i < 3; ++i) events[i] = {descriptors[i], POLLIN, 0};
    const auto left = std::chrono::ceil<milliseconds>(probe.next() - Clock::now());
    ::poll(events, 3, static_cast<int>(std::max<std::int64_t>(0, left.count())));
  }
}

std::unique_ptr<ProbeProcess> RunShell(const std::string& script,
                                       Clock::duration patience = seconds(20)) {
  auto probe = StartShell(script, patience);
  WaitForEnd(*probe);
  return probe;
}

TEST_CASE("ProbeProcess: gives what the child prints, and its good end") {
  const auto probe = RunShell("echo one; echo wrong >&2; echo two");
  CHECK(probe->end().ok());
  CHECK(probe->output() == "one\ntwo\n");
  CHECK(probe->LastError() == "wrong");
}

TEST_CASE("ProbeProcess: an exit code and a signal are told apart, by name") {
  CHECK(RunShell("exit 3")->end() == absl::InternalError("ended with exit code 3"));
  CHECK(RunShell("echo begun; kill -SEGV $$")->end() ==
        absl::AbortedError("was ended by signal 11 (SIGSEGV)"));
}

TEST_CASE("ProbeProcess: what was printed before a crash is kept, and its last words") {
  const auto probe = RunShell("echo begun; printf 'a\\nb\\033[2J\\n' >&2; kill -ABRT $$");
  CHECK(probe->output() == "begun\n");
  CHECK(probe->LastError() == "b?[2J");
}

TEST_CASE("ProbeProcess: is killed at its deadline, with all that it has started") {
  const Clock::time_point begin = Clock::now();
  const auto probe = RunShell("sleep 60 & echo $!; exec sleep 60", seconds(1));
  CHECK(Clock::now() - begin < seconds(10));
  CHECK(probe->end() == absl::DeadlineExceededError("did not end within 1 s and was killed"));
  CHECK_FALSE(probe->stuck());
  const pid_t started = std::stoi(probe->output());
  // It has no parent that would reap it at once.
  for (int i = 0; i < 500 && ::kill(started, 0) == 0; ++i) {
    char state = 0;
    if (FILE* file = ::fopen(("/proc/" + std::to_string(started) + "/stat").c_str(), "r")) {
      if (std::fscanf(file, "%*d %*s %c", &state) != 1) state = 'Z';
      std::fclose(file);
    }
    if (state == 'Z') break;
    CHECK(i < 499);
    std::this_thread::sleep_for(milliseconds(10));
  }
}

TEST_CASE("ProbeProcess: what it has started does not outlive its good end, nor hold it up") {
  const Clock::time_point begin = Clock::now();
  const auto probe = RunShell("sleep 60 & echo here");
  CHECK(probe->end().ok());
  CHECK(probe->output() == "here\n");
  CHECK(Clock::now() - begin < seconds(10));
}

TEST_CASE("ProbeProcess: one that prints without end is killed") {
  const auto probe = RunShell("while :; do echo 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; done");
  CHECK(absl::IsInternal(probe->end()));
  CHECK_THAT(std::string(probe->end().message()), Contains("printed more than 262144 bytes"));
  CHECK(probe->output().size() <= ProbeProcess::kMostOutput + 4096);
}

TEST_CASE("ProbeProcess: a program that is not there is an error of the start") {
  const auto probe = ProbeProcess::Start({"/no/such/program"}, Clock::now() + seconds(1));
  CHECK(absl::IsNotFound(probe.status()));
  CHECK_THAT(std::string(probe.status().message()), Contains("/no/such/program"));
}

TEST_CASE("ProbeProcess: the child has no descriptor, signal mask or word of systemd's from us") {
  const int open_here = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  REQUIRE(open_here > 2);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
  ::setenv("NOTIFY_SOCKET", "/n", 1);
  ::setenv("WATCHDOG_USEC", "5", 1);
  const auto probe = RunShell(
      "ls /proc/self/fd | wc -l; grep -c 'SigBlk:.*[1-9a-f]' /proc/self/status; "
      "env | grep -c 'NOTIFY\\|WATCHDOG'; readlink /proc/self/fd/0");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::unsetenv("NOTIFY_SOCKET");
  ::unsetenv("WATCHDOG_USEC");
  ::close(open_here);
  // ls has the three, and the folder that it reads.
  CHECK(probe->output() == "4\n0\n0\n/dev/null\n");
}

TEST_CASE("ProbeProcess: a child that is still there goes with its owner") {
  pid_t pid = -1;
  {
    const auto probe = StartShell("exec sleep 60");
    pid = probe->pid();
    CHECK_FALSE(probe->Advance(Clock::now()));
  }
  CHECK(::kill(pid, 0) != 0);
}

}  // namespace
}  // namespace ringd
