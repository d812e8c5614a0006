#include "daemon/attach/attach_listener.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"
#include "proto/shm/session_segment.h"
#include "tests/daemon/attach/listener_fixture.h"
#include "tests/processor_seconds.h"

namespace ringd {
namespace {

using Catch::Contains;

bool HangsUp(int socket) {
  pollfd entry{socket, POLLIN, 0};
  if (::poll(&entry, 1, 10'000) != 1) return false;
  char byte = 0;
  return ::recv(socket, &byte, 1, MSG_DONTWAIT) <= 0;
}

// True if an attach by a child process of another user ends with `expected`.
int AttachAsUser(const std::string& path, uid_t uid, gid_t gid, std::string& text) {
  int pipe_fds[2];
  REQUIRE(::pipe(pipe_fds) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(gid) != 0 || ::setuid(uid) != 0) ::_exit(100);
    auto socket = ConnectUnix(path, InSeconds(10));
    if (!socket.ok()) ::_exit(101);
    const auto answer = RequestAttach(socket->get());
    if (!answer.ok()) ::_exit(102);
    const std::string reply = answer->text();
    if (::write(pipe_fds[1], reply.data(), reply.size()) < 0) ::_exit(103);
    ::_exit(static_cast<int>(answer->reply.status));
  }
  ::close(pipe_fds[1]);
  char buffer[1024];
  ssize_t count = 0;
  while ((count = ::read(pipe_fds[0], buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(pipe_fds[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("AttachListener: an engine is not let in, neither as a trainer nor as an operator") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  fixture.engine_pid = ::getpid();
  for (const char* begin : {"PRI * HTTP/2.0", "rubbish"}) {
    const UniqueFd socket = fixture.Connect();
    static_cast<void>(::send(socket.get(), begin, std::strlen(begin), MSG_NOSIGNAL));
    CHECK(HangsUp(socket.get()));
  }
  const UniqueFd trainer = fixture.Connect();
  CHECK_FALSE(RequestAttach(trainer.get()).ok());
  CHECK(fixture.TakeSessions().empty());
  CHECK(fixture.admitted().empty());
  CHECK(fixture.refused_grpc_count() == 0);

  fixture.engine_pid = 0;
  const UniqueFd other = fixture.Connect();
  CHECK(RequestAttach(other.get())->code() == absl::StatusCode::kOk);
}

TEST_CASE("AttachListener: a trainer gets sealed memory, a bell and a gRPC connection") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  const UniqueFd socket = fixture.Connect();
  const auto answer = RequestAttach(socket.get());
  REQUIRE(answer.ok());
  REQUIRE(answer->code() == absl::StatusCode::kOk);
  REQUIRE(answer->fds.size() == kAttachFdCount);
  CHECK(answer->reply.magic == kAttachMagic);
  CHECK(answer->reply.version == kAttachVersion);
  CHECK(answer->reply.arena_bytes == fixture.config.arena_bytes);

  // The engine knew the session before the client did.
  auto sessions = fixture.TakeSessions();
  auto grpc = fixture.WaitForGrpcConnections(1);
  REQUIRE(sessions.size() == 1);
  REQUIRE(grpc.size() == 1);
  SessionResources& session = *sessions[0];
  CHECK(session.id.value() == answer->reply.session);
  CHECK(session.token == std::string(answer->reply.token, sizeof(answer->reply.token)));
  CHECK(session.token.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(session.peer.pid == ::getpid());
  CHECK(session.peer.uid == ::geteuid());
  CHECK(session.pidfd.valid());

  // Both sides see one memory, and it is sealed.
  for (const AttachFd fd : {kSessionSegmentFd, kArenaFd}) {
    CHECK(CheckSealed(answer->fds[static_cast<std::size_t>(fd)].get()).ok());
  }
  auto segment =
      MemoryMapping::Map(answer->fds[kSessionSegmentFd].get(), answer->reply.segment_bytes);
  REQUIRE(segment.ok());
  CHECK(CheckSessionSegment(*reinterpret_cast<SessionHeader*>(segment->data()), segment->size())
            .ok());
  auto arena = MemoryMapping::Map(answer->fds[kArenaFd].get(), answer->reply.arena_bytes);
  REQUIRE(arena.ok());
  arena->data()[100] = std::byte{42};
  CHECK(session.arena.data() == nullptr);
  REQUIRE(session.MapMemory().ok());
  CHECK(session.arena.data()[100] == std::byte{42});

  // The client's bell rings in ringd, and its gRPC end is connected to what the server was given.
  const std::uint64_t one = 1;
  CHECK(::write(answer->fds[kEngineEventFd].get(), &one, sizeof(one)) == sizeof(one));
  std::uint64_t rung = 0;
  CHECK(::read(session.event_fd.get(), &rung, sizeof(rung)) == sizeof(rung));
  CHECK(::write(answer->fds[kGrpcFd].get(), "x", 1) == 1);
  char byte = 0;
  CHECK(::read(grpc[0].get(), &byte, 1) == 1);

  // The end of the session's resources is the end of the connection.
  sessions.clear();
  CHECK(HangsUp(socket.get()));
}

TEST_CASE("AttachListener: a request in single bytes is a request all the same") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  const UniqueFd socket = fixture.Connect();
  AttachRequest request{};
  request.magic = kAttachMagic;
  request.version = kAttachVersion;
  for (const std::byte& byte : std::as_bytes(std::span(&request, 1))) {
    REQUIRE(::send(socket.get(), &byte, 1, MSG_NOSIGNAL) == 1);
    ::poll(nullptr, 0, 1);
  }
  AttachReply reply{};
  REQUIRE(ReceiveWithFds(socket.get(), std::as_writable_bytes(std::span(&reply, 1)), InSeconds(10))
              .ok());
  CHECK(reply.status == 0);
}

TEST_CASE("AttachListener: another version is refused with both versions named") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  const UniqueFd socket = fixture.Connect();
  const auto answer = RequestAttach(socket.get(), 77);
  REQUIRE(answer.ok());
  CHECK(answer->code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(answer->text(), Contains("version 77") && Contains("version 1"));
  CHECK(answer->fds.empty());
  CHECK(fixture.refused() == 1);
  CHECK(HangsUp(socket.get()));
}

TEST_CASE("AttachListener: what speaks neither protocol is closed at its first wrong byte") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  for (const char* text : {"GET / HTTP/1.1\r\n", "PRX ", "R???", "\n"}) {
    INFO(text);
    const UniqueFd socket = fixture.Connect();
    REQUIRE(::send(socket.get(), text, std::strlen(text), MSG_NOSIGNAL) > 0);
    CHECK(HangsUp(socket.get()));
  }
  CHECK(fixture.TakeSessions().empty());
}

TEST_CASE("AttachListener: a gRPC connection is handed on with its first bytes untouched") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  const UniqueFd socket = fixture.Connect();
  REQUIRE(::send(socket.get(), "PR", 2, MSG_NOSIGNAL) == 2);
  REQUIRE(::send(socket.get(), "I * HTTP/2.0", 12, MSG_NOSIGNAL) == 12);
  const auto grpc = fixture.WaitForGrpcConnections(1);
  REQUIRE(grpc.size() == 1);
  char bytes[14];
  CHECK(::recv(grpc[0].get(), bytes, sizeof(bytes), 0) == 14);
  CHECK(std::string(bytes, 14) == "PRI * HTTP/2.0");
}

TEST_CASE("AttachListener: a gRPC connection that its client has left costs no time") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  UniqueFd socket = fixture.Connect();
  REQUIRE(::send(socket.get(), "PRI * HTTP/2.0", 14, MSG_NOSIGNAL) == 14);
  const auto still_served = fixture.WaitForGrpcConnections(1);
  REQUIRE(still_served.size() == 1);
  socket.Reset();
  CHECK(ProcessorSecondsIn(std::chrono::seconds(1)) < 0.2);
}

TEST_CASE("AttachListener: hundreds of half handshakes harm nobody") {
  ListenerFixture fixture;
  fixture.config.handshake_timeout = std::chrono::seconds(60);
  REQUIRE(fixture.Start().ok());
  std::vector<UniqueFd> half;
  for (int i = 0; i < 600; ++i) {
    half.push_back(fixture.Connect());
    if (i % 2 == 0) REQUIRE(::send(half.back().get(), "RNGD\1", 5, MSG_NOSIGNAL) == 5);
  }
  const Clock::time_point start = Clock::now();
  const UniqueFd socket = fixture.Connect();
  const auto answer = RequestAttach(socket.get());
  REQUIRE(answer.ok());
  CHECK(answer->code() == absl::StatusCode::kOk);
  CHECK(Clock::now() - start < std::chrono::seconds(30));
  // The oldest had to go, the newest are kept.
  CHECK(HangsUp(half.front().get()));
  pollfd newest{half.back().get(), POLLIN, 0};
  CHECK(::poll(&newest, 1, 0) == 0);
}

TEST_CASE("AttachListener: a handshake that takes too long is closed") {
  ListenerFixture fixture;
  fixture.config.handshake_timeout = std::chrono::milliseconds(50);
  REQUIRE(fixture.Start().ok());
  const UniqueFd silent = fixture.Connect();
  CHECK(HangsUp(silent.get()));
}

TEST_CASE(
    "AttachListener: without free descriptors it waits, without spinning, and goes on later") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old_limit) == 0);
  const UniqueFd lowest(::dup(0));  // the limit counts numbers, not descriptors
  rlimit none = old_limit;
  none.rlim_cur = static_cast<rlim_t>(lowest.get());
  // A connection that the kernel accepts without a descriptor of this process.
  const pid_t child = [&] {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::poll(nullptr, 0, 200);
      auto socket = ConnectUnix(fixture.config.socket, InSeconds(10));
      if (!socket.ok()) ::_exit(1);
      const auto answer = RequestAttach(socket->get());
      ::_exit(answer.ok() && answer->reply.status == 0 ? 0 : 2);
    }
    return pid;
  }();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const double cpu_seconds = ProcessorSecondsIn(std::chrono::seconds(1));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &old_limit) == 0);
  CHECK(cpu_seconds < 0.2);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("AttachListener: places are limited and given back when a session ends") {
  ListenerFixture fixture;
  fixture.config.max_sessions = 2;
  REQUIRE(fixture.Start().ok());
  const UniqueFd first = fixture.Connect(), second = fixture.Connect(), third = fixture.Connect();
  REQUIRE(RequestAttach(first.get())->code() == absl::StatusCode::kOk);
  REQUIRE(RequestAttach(second.get())->code() == absl::StatusCode::kOk);
  const auto refused = RequestAttach(third.get());
  REQUIRE(refused.ok());
  CHECK(refused->code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(refused->text(), Contains("max_sessions"));
  auto sessions = fixture.TakeSessions();
  sessions.pop_back();
  const UniqueFd fourth = fixture.Connect();
  CHECK(RequestAttach(fourth.get())->code() == absl::StatusCode::kOk);
}

TEST_CASE("AttachListener: while draining it refuses trainers and still serves gRPC") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  fixture.draining = true;
  const UniqueFd trainer = fixture.Connect();
  const auto answer = RequestAttach(trainer.get());
  REQUIRE(answer.ok());
  CHECK(answer->code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(answer->text(), Contains("draining"));
  const UniqueFd person = fixture.Connect();
  REQUIRE(::send(person.get(), "PRI ", 4, MSG_NOSIGNAL) == 4);
  CHECK(fixture.WaitForGrpcConnections(1).size() == 1);
  fixture.draining = false;
  const UniqueFd later = fixture.Connect();
  CHECK(RequestAttach(later.get())->code() == absl::StatusCode::kOk);
}

TEST_CASE("AttachListener: another user's process is refused unless the configuration admits it") {
  if (::geteuid() != 0) return;  // only root can take another user's place
  constexpr uid_t kNobody = 65534;
  constexpr gid_t kNogroup = 65534, kOtherGroup = 4242;
  std::string text;
  {
    ListenerFixture fixture;
    REQUIRE(fixture.Start().ok());
    CHECK(AttachAsUser(fixture.config.socket, kNobody, kNogroup, text) ==
          static_cast<int>(absl::StatusCode::kPermissionDenied));
    CHECK_THAT(text, Contains("uid 65534") && Contains("allowed_users"));
  }
  {
    ListenerFixture fixture;
    fixture.config.allowed_groups = {"4243"};  // for which the user database is asked
    REQUIRE(fixture.Start().ok());
    std::string named;
    CHECK(AttachAsUser(fixture.config.socket, kNobody, kNogroup, named) ==
          static_cast<int>(absl::StatusCode::kPermissionDenied));
    CHECK_THAT(named, Contains("user nobody (uid 65534)"));
  }
  for (const auto& [users, groups] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
           {{"nobody"}, {}}, {{"65534"}, {}}, {{"*"}, {}}, {{}, {"4242"}}, {{}, {"nogroup"}}}) {
    ListenerFixture fixture;
    fixture.config.allowed_users = users;
    fixture.config.allowed_groups = groups;
    REQUIRE(fixture.Start().ok());
    CHECK(AttachAsUser(fixture.config.socket, kNobody, kOtherGroup, text) == 0);
  }
}

TEST_CASE("AttachListener: a user that the configuration names must exist") {
  ListenerFixture fixture;
  fixture.config.allowed_users = {"no-such-user"};
  const absl::Status status = fixture.Start();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains("allowed_users") && Contains("no-such-user"));
}

TEST_CASE("AttachListener: takes over other limits and users, or nothing if one does not exist") {
  ListenerFixture fixture;
  fixture.config.max_sessions = 1;
  REQUIRE(fixture.Start().ok());
  const UniqueFd first = fixture.Connect();
  CHECK(RequestAttach(first.get())->code() == absl::StatusCode::kOk);
  const UniqueFd second = fixture.Connect();
  CHECK(RequestAttach(second.get())->code() == absl::StatusCode::kResourceExhausted);

  Config config = fixture.config;
  config.max_sessions = 2;
  config.allowed_groups = {"no-such-group"};
  CHECK(fixture.Reload(config).code() == absl::StatusCode::kInvalidArgument);
  const UniqueFd third = fixture.Connect();
  CHECK(RequestAttach(third.get())->code() == absl::StatusCode::kResourceExhausted);
  config.allowed_groups.clear();
  CHECK(fixture.Reload(config).ok());
  const UniqueFd fourth = fixture.Connect();
  CHECK(RequestAttach(fourth.get())->code() == absl::StatusCode::kOk);
}

TEST_CASE("AttachListener: a socket that is served is left alone, a stale one is replaced") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  CHECK(AttachListener::Start(fixture.config, fixture.Callbacks()).status().code() ==
        absl::StatusCode::kAlreadyExists);
  const UniqueFd socket = fixture.Connect();
  CHECK(RequestAttach(socket.get()).ok());
  fixture.listener->Stop();
  CHECK_FALSE(std::filesystem::exists(fixture.config.socket));

  // What a killed ringd leaves behind.
  auto stale = ListenUnix(fixture.config.socket, 0600);
  REQUIRE(stale.ok());
  stale->Reset();
  REQUIRE(std::filesystem::exists(fixture.config.socket));
  REQUIRE(fixture.Start().ok());
  const UniqueFd again = fixture.Connect();
  CHECK(RequestAttach(again.get()).ok());
}

TEST_CASE("AttachListener: Stop removes its own socket file only") {
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  std::filesystem::remove(fixture.config.socket);
  const auto other = ListenUnix(fixture.config.socket, 0600);
  REQUIRE(other.ok());
  fixture.listener->Stop();
  CHECK(std::filesystem::exists(fixture.config.socket));
}

}  // namespace
}  // namespace ringd
