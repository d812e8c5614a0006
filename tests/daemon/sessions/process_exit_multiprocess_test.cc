#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "daemon/sessions/process_exit.h"
#include "proto/base/clock.h"
#include "proto/base/proc_stat.h"

namespace ringd {
namespace {

using State = ExitInquiry::State;

constexpr auto kPatience = std::chrono::seconds(20);

pid_t Fork(const std::function<void()>& body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  body();
  ::_exit(0);
}

UniqueFd PidFd(pid_t pid) { return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void WaitForEver() {
  while (true) ::pause();
}

// Until it is something else than `from`.
State LookPast(ExitInquiry& inquiry, State from) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  State state = inquiry.Look();
  while (state == from && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state = inquiry.Look();
  }
  return state;
}

void ExpectExit(ExitInquiry& inquiry, const ProcessExit& expected) {
  REQUIRE(inquiry.Look() == State::kKnown);
  CHECK(inquiry.exit()->signal == expected.signal);
  CHECK(inquiry.exit()->exit_code == expected.exit_code);
}

TEST_CASE("ExitInquiry: how a process of the same user ended is known before it is reaped") {
  const auto [exit_code, signal] =
      GENERATE(std::pair(0, 0), std::pair(7, 0), std::pair(0, SIGKILL));
  const pid_t child = Fork([&] {
    if (signal != 0) ::raise(signal);
    ::_exit(exit_code);
  });
  ExitInquiry inquiry(child, PidFd(child).get());
  CHECK(LookPast(inquiry, State::kRuns) == State::kKnown);
  ExpectExit(inquiry, {exit_code, signal});
  ::waitpid(child, nullptr, 0);
  ExpectExit(inquiry, {exit_code, signal});
}

TEST_CASE("ExitInquiry: a process that runs has not ended, and none that nobody can see") {
  const pid_t child = Fork(WaitForEver);
  const UniqueFd pidfd = PidFd(child);
  CHECK(ExitInquiry(child, pidfd.get()).Look() == State::kRuns);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(ExitInquiry(child, -1).Look() == State::kRuns);
}

TEST_CASE(
    "ExitInquiry: a process that was reaped before the first look is known by its pidfd, or "
    "never") {
  const pid_t child = Fork([] { ::_exit(3); });
  const UniqueFd pidfd = PidFd(child);
  ::waitpid(child, nullptr, 0);
  // Its pid may belong to another process by now.
  ExitInquiry inquiry(::getpid(), pidfd.get());
  const State state = inquiry.Look();
  if (state == State::kKnown) {
    ExpectExit(inquiry, {3, 0});
  } else {
    CHECK(state == State::kHidden);  // before Linux 6.15
  }
}

// What the other user's process has seen, in memory that both have.
struct Sightings {
  std::atomic<int> before{-1};
  std::atomic<bool> reaped{false};
  std::atomic<int> after{-1};
  ProcessExit exit;
};

TEST_CASE("ExitInquiry: of another user's process nothing is believed before it is reaped") {
  if (::geteuid() != 0) {
    WARN("skipped: needs root, which can become another user");
    return;
  }
  const auto [exit_code, signal] =
      GENERATE(std::pair(0, 0), std::pair(7, 0), std::pair(0, SIGKILL));
  void* const shared =
      ::mmap(nullptr, sizeof(Sightings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& seen = *new (shared) Sightings;
  const pid_t child = Fork([&] {
    if (signal != 0) ::raise(signal);
    ::_exit(exit_code);
  });
  const pid_t other_user = Fork([&] {
    ExitInquiry inquiry(child, PidFd(child).get());
    constexpr uid_t kNobodyElse = 54'321;
    if (::setresuid(kNobodyElse, kNobodyElse, kNobodyElse) != 0) ::_exit(1);
    seen.before = static_cast<int>(LookPast(inquiry, State::kRuns));
    const Clock::time_point deadline = Clock::now() + kPatience;
    while (!seen.reaped && Clock::now() < deadline) ::usleep(1000);
    const State state = inquiry.Look();
    if (inquiry.exit().has_value()) seen.exit = *inquiry.exit();
    seen.after = static_cast<int>(state);
  });
  const Clock::time_point deadline = Clock::now() + kPatience;
  while (seen.before < 0 && Clock::now() < deadline) ::usleep(1000);
  ::waitpid(child, nullptr, 0);
  seen.reaped = true;
  int status = -1;
  ::waitpid(other_user, &status, 0);
  CHECK(status == 0);
  const bool is_new_kernel = seen.before == static_cast<int>(State::kEnded);
  CHECK((is_new_kernel || seen.before == static_cast<int>(State::kHidden)));
  if (seen.after == static_cast<int>(State::kKnown)) {
    CHECK(seen.exit.signal == signal);
    CHECK(seen.exit.exit_code == exit_code);
  } else {
    CHECK(seen.after == static_cast<int>(State::kHidden));  // before Linux 6.15
  }
  ::munmap(shared, sizeof(Sightings));
}

TEST_CASE("ReadProcStat: a process that is reaped while its file is open has no fields") {
  // Each time there is a moment between the open and the read of the reader.
  for (int i = 0; i < 500; ++i) {
    const pid_t child = Fork([] {});
    std::atomic<bool> reads{false};
    std::thread reader([&] {
      const Clock::time_point deadline = Clock::now() + kPatience;
      while (!ReadProcStat(child).empty() && Clock::now() < deadline) reads = true;
      reads = true;
    });
    while (!reads) std::this_thread::yield();
    ::waitpid(child, nullptr, 0);
    reader.join();
    CHECK(ReadProcStat(child).empty());
  }
}

}  // namespace
}  // namespace ringd
