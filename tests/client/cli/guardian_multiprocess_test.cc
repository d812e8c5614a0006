// ringctl is killed, and with it all that it started.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "client/cli/processes/guardian.h"
#include "client/cli/processes/process.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// True if the process with a pipe's write end lets go of it before the deadline: all who had it are
// dead then.
bool EndsSoon(int read_end) {
  const Clock::time_point deadline = Clock::now() + seconds(30);
  ::fcntl(read_end, F_SETFL, O_NONBLOCK);
  char byte = 0;
  while (Clock::now() < deadline) {
    if (::read(read_end, &byte, 1) == 0) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

}  // namespace

TEST_CASE("Guardian: when its owner is killed, children, grandchildren and folders go") {
  char folder[] = "/tmp/ringctl-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t owner = ::fork();
  REQUIRE(owner >= 0);
  if (owner == 0) {
    // The owner of a child that has a child; both hold the pipe open.
    ::close(ends[0]);
    ::fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    auto guardian = Guardian::Start();
    if (!guardian.ok()) ::_exit(1);
    (*guardian)->WatchFolder(folder);
    SpawnOptions spawn;
    spawn.arguments = {"sh", "-c", "sleep 60 & echo started; wait"};
    spawn.environment = {"PATH=/usr/bin:/bin"};
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    spawn.standard_input = null;
    spawn.standard_output = ends[1];
    spawn.standard_error = null;
    const auto child = Spawn(spawn);
    if (!child.ok()) ::_exit(1);
    (*guardian)->WatchGroup(*child);
    ::close(ends[1]);
    ::sleep(60);
    ::_exit(0);
  }
  write_end.Reset();
  char text[8] = {};
  REQUIRE(::read(read_end.get(), text, sizeof(text)) == 8);  // "started\n"
  std::this_thread::sleep_for(milliseconds(50));
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  CHECK(EndsSoon(read_end.get()));
  const Clock::time_point deadline = Clock::now() + seconds(30);
  while (std::filesystem::exists(folder) && Clock::now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  CHECK_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("Guardian: in an orderly end it touches nothing") {
  char folder[] = "/tmp/ringctl-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const pid_t bystander = ::fork();
  REQUIRE(bystander >= 0);
  if (bystander == 0) {
    ::setpgid(0, 0);
    ::sleep(60);
    ::_exit(0);
  }
  {
    auto guardian = Guardian::Start();
    REQUIRE(guardian.ok());
    (*guardian)->WatchGroup(bystander);
    (*guardian)->WatchFolder(folder);
  }
  CHECK_FALSE(PeekEnd(bystander).has_value());
  CHECK(std::filesystem::exists(folder));
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace ringd::cli
