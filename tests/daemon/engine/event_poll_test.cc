#include "daemon/engine/event_poll.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{0};
constexpr milliseconds kLong{5000};

void Ring(int fd) {
  const std::uint64_t one = 1;
  REQUIRE(::write(fd, &one, sizeof(one)) == sizeof(one));
}

TEST_CASE("EventPoll: says which descriptor of which session is ready") {
  EventPoll poll;
  const UniqueFd commands(::eventfd(0, EFD_CLOEXEC));
  const UniqueFd doorbell(::eventfd(0, EFD_CLOEXEC));
  poll.Add(commands.get(), EventKind::kCommands);
  poll.Add(doorbell.get(), EventKind::kDoorbell, SessionId(0xfffffff0U));
  CHECK(poll.Wait(kLook).empty());

  Ring(doorbell.get());
  const auto events = poll.Wait(kLong);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == EventKind::kDoorbell);
  CHECK(events[0].session == SessionId(0xfffffff0U));

  Ring(commands.get());
  CHECK(poll.Wait(kLong).size() == 2);
  poll.Remove(doorbell.get());
  const auto rest = poll.Wait(kLong);
  REQUIRE(rest.size() == 1);
  CHECK(rest[0].kind == EventKind::kCommands);
}

TEST_CASE("EventPoll: a lifeline tells of its end, but not of bytes") {
  EventPoll poll;
  auto pair = UnixSocketPair();
  REQUIRE(pair.ok());
  poll.Add(pair->first.get(), EventKind::kHangUp, SessionId(7));
  REQUIRE(::send(pair->second.get(), "x", 1, 0) == 1);
  CHECK(poll.Wait(kLook).empty());
  SECTION("closed") { pair->second.Reset(); }
  SECTION("shut down for writing") { ::shutdown(pair->second.get(), SHUT_WR); }
  const auto events = poll.Wait(kLong);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == EventKind::kHangUp);
  CHECK(events[0].session == SessionId(7));
}

TEST_CASE("EventPoll: a process's end is an event of its session") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  REQUIRE(child > 0);
  EventPoll poll;
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  poll.Add(pidfd.get(), EventKind::kProcessEnd, SessionId(3));
  CHECK(poll.Wait(kLook).empty());
  ::kill(child, SIGKILL);
  const auto events = poll.Wait(kLong);
  ::waitpid(child, nullptr, 0);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == EventKind::kProcessEnd);
  CHECK(events[0].session == SessionId(3));
}

TEST_CASE("EventPoll: no descriptor is no event, and a wait ends in time") {
  EventPoll poll;
  poll.Add(-1, EventKind::kTransport);
  poll.Remove(-1);
  const Clock::time_point begin = Clock::now();
  CHECK(poll.Wait(milliseconds(30)).empty());
  const auto took = Clock::now() - begin;
  CHECK(took >= milliseconds(29));
  CHECK(took < kLong);
}

}  // namespace
}  // namespace ringd
