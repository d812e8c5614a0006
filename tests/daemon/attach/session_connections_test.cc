// How long a session's gRPC connection counts: until its trainer lets go of it, or has ended.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "daemon/attach/attach_listener.h"
#include "tests/daemon/attach/listener_fixture.h"

namespace ringd {
namespace {

absl::StatusCode Attach(const ListenerFixture& fixture) {
  const UniqueFd socket = fixture.Connect();
  const auto answer = RequestAttach(socket.get());
  REQUIRE(answer.ok());
  return answer->code();
}

// True if one can attach within 10 s.
bool IsFreeSoon(const ListenerFixture& fixture) {
  const Clock::time_point deadline = InSeconds(10);
  while (Attach(fixture) != absl::StatusCode::kOk) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

TEST_CASE("AttachListener: a session that is over counts until its trainer closes its connection") {
  ListenerFixture fixture;
  fixture.config.max_sessions = 1;
  REQUIRE(fixture.Start().ok());
  UniqueFd lifeline = fixture.Connect();
  auto answer = RequestAttach(lifeline.get());
  REQUIRE(answer->code() == absl::StatusCode::kOk);
  lifeline.Reset();
  REQUIRE(fixture.TakeSessions().size() == 1);  // and destroyed
  CHECK(Attach(fixture) == absl::StatusCode::kResourceExhausted);
  answer->fds.clear();
  CHECK(IsFreeSoon(fixture));
}

TEST_CASE("AttachListener: what a trainer has forked keeps no connection of its session") {
  ListenerFixture fixture;
  fixture.config.max_sessions = 1;
  REQUIRE(fixture.Start().ok());
  int attached[2], held[2];
  REQUIRE(::pipe(attached) == 0);
  REQUIRE(::pipe(held) == 0);
  const pid_t trainer = ::fork();
  if (trainer == 0) {
    auto socket = ConnectUnix(fixture.config.socket, InSeconds(10));
    if (!socket.ok()) ::_exit(1);
    auto answer = RequestAttach(socket->get());
    if (!answer.ok() || answer->code() != absl::StatusCode::kOk) ::_exit(2);
    ::close(held[1]);
    char byte = 0;
    if (::fork() == 0) {
      // Until the test closes its end.
      ::close(attached[1]);
      ::_exit(::read(held[0], &byte, 1) == 0 ? 0 : 3);
    }
    ::_exit(::write(attached[1], "a", 1) == 1 ? 0 : 4);
  }
  ::close(attached[1]);
  ::close(held[0]);
  char byte = 0;
  CHECK(::read(attached[0], &byte, 1) == 1);
  ::close(attached[0]);
  int status = 0;
  REQUIRE(::waitpid(trainer, &status, 0) == trainer);
  CHECK(status == 0);
  CHECK(fixture.TakeSessions().size() == 1);  // and destroyed
  CHECK(IsFreeSoon(fixture));
  // gRPC's end hears of it, too.
  const std::vector<UniqueFd> served = fixture.WaitForGrpcConnections(1);
  pollfd entry{served.front().get(), POLLIN, 0};
  CHECK(::poll(&entry, 1, 10'000) == 1);
  CHECK(::recv(entry.fd, &byte, 1, MSG_DONTWAIT) == 0);
  ::close(held[1]);
}

}  // namespace
}  // namespace ringd
