// Connections that an engine has made, and given to somebody else before they are accepted.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <span>

#include "tests/daemon/attach/listener_fixture.h"

namespace ringd {
namespace {

bool HangsUp(int socket) {
  pollfd entry{socket, POLLIN, 0};
  if (::poll(&entry, 1, 10'000) != 1) return false;
  char byte = 0;
  return ::recv(socket, &byte, 1, MSG_DONTWAIT) <= 0;
}

struct Given {
  pid_t from = 0;
  UniqueFd socket;
};

// A process that connects, gives its socket away, and has ended.
Given GivenByAnother(const std::string& path) {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  std::array<std::byte, 1> byte{};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto socket = ConnectUnix(path, InSeconds(10));
    if (!socket.ok()) ::_exit(1);
    const int fd = socket->get();
    ::_exit(SendWithFds(ends->first.get(), byte, {&fd, 1}, InSeconds(10)).ok() ? 0 : 2);
  }
  ends->first.Reset();
  auto fds = ReceiveWithFds(ends->second.get(), byte, InSeconds(10));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(fds.ok());
  REQUIRE(fds->size() == 1);
  return {child, std::move(fds->front())};
}

TEST_CASE(
    "AttachListener: a connection of an engine that has ended meanwhile is none of its heir") {
  ListenerFixture fixture;
  std::promise<void> busy, go_on;
  fixture.before_next = [&] {
    busy.set_value();
    go_on.get_future().wait_for(std::chrono::seconds(20));
  };
  REQUIRE(fixture.Start().ok());
  const UniqueFd first = fixture.Connect();
  REQUIRE(busy.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  const Given given = GivenByAnother(fixture.config.socket);
  fixture.engine_pid = given.from;
  fixture.engine_ended = Clock::now();
  go_on.set_value();
  // Otherwise it would be an operator, as ringd's own user is.
  CHECK(HangsUp(given.socket.get()));
  CHECK(fixture.TakeSessions().empty());
  CHECK(RequestAttach(first.get())->code() == absl::StatusCode::kOk);
}

TEST_CASE("AttachListener: a process that has got an engine's pid after its end is let in") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  fixture.engine_pid = ::getpid();
  // At the next one it has been seen that nobody waited.
  const UniqueFd before = fixture.Connect();
  CHECK(HangsUp(before.get()));
  fixture.engine_ended = Clock::now();
  fixture.engine_pid = 0;
  const UniqueFd between = fixture.Connect();
  CHECK(RequestAttach(between.get())->code() == absl::StatusCode::kOk);
  fixture.engine_pid = ::getpid();
  const UniqueFd after = fixture.Connect();
  const auto answer = RequestAttach(after.get());
  REQUIRE(answer.ok());
  CHECK(answer->code() == absl::StatusCode::kOk);
}

}  // namespace
}  // namespace ringd
