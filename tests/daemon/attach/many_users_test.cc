// What one user, or one person with many user numbers, can take from others on ringd's socket. The
// clients are processes of these users: only root can run this.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "daemon/attach/attach_listener.h"
#include "tests/daemon/attach/listener_fixture.h"

namespace ringd {
namespace {

using Catch::Contains;

constexpr uid_t kFirstUser = 70'001;

bool IsRoot() { return ::geteuid() == 0; }

// A process that becomes user after user and opens `each` connections as every one of them, which
// it keeps, and on which it says `opening`.
class Crowd {
 public:
  Crowd(const std::string& socket, uid_t first, int users, int each, const std::string& opening) {
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
    child_ = ::fork();
    if (child_ == 0) {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = limit.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &limit);
      std::vector<UniqueFd> held;
      for (int i = 0; i < users * each; ++i) {
        if (::seteuid(first + static_cast<uid_t>(i / each)) != 0) ::_exit(1);
        auto connected = ConnectUnix(socket, InSeconds(20));
        if (!connected.ok()) ::_exit(2);
        static_cast<void>(::send(connected->get(), opening.data(), opening.size(), MSG_NOSIGNAL));
        held.push_back(*std::move(connected));
        if (::seteuid(0) != 0) ::_exit(3);
      }
      if (::write(ready[1], "r", 1) != 1) ::_exit(4);
      ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    const bool is_ready = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    REQUIRE(is_ready);
  }
  ~Crowd() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  pid_t child_;
};

bool IsOpen(const UniqueFd& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 0;
}

// The listener has taken in whatever connected before this.
void AttachAsRoot(const ListenerFixture& fixture) {
  const UniqueFd socket = fixture.Connect();
  const auto answer = RequestAttach(socket.get());
  REQUIRE(answer.ok());
  INFO(answer->text());
  CHECK(answer->code() == absl::StatusCode::kOk);
}

std::string WholeRequest() {
  AttachRequest request{};
  request.magic = kAttachMagic;
  request.version = kAttachVersion;
  return std::string(reinterpret_cast<const char*>(&request), sizeof(request));
}

TEST_CASE(
    "AttachListener: users who take all sessions they can leave places for root and another") {
  if (!IsRoot()) return;
  ListenerFixture fixture;
  fixture.config.max_sessions = 32;
  fixture.config.allowed_users = {"*"};
  REQUIRE(fixture.Start().ok());
  const Crowd greedy(fixture.config.socket, kFirstUser, 4, 32, WholeRequest());
  for (int i = 0; i < 2; ++i) AttachAsRoot(fixture);
  auto sessions = fixture.TakeSessions();
  std::map<uid_t, int> by_user;
  for (const auto& session : sessions) ++by_user[session->peer.uid];
  CHECK(by_user[kFirstUser] == 8);  // a quarter
  CHECK(by_user[0] == 2);
  const Crowd modest(fixture.config.socket, kFirstUser + 100, 1, 1, WholeRequest());
  const Clock::time_point deadline = InSeconds(20);
  while (sessions.back()->peer.uid != kFirstUser + 100 && Clock::now() < deadline) {
    for (auto& session : fixture.TakeSessions()) sessions.push_back(std::move(session));
  }
  CHECK(sessions.back()->peer.uid == kFirstUser + 100);
}

TEST_CASE("AttachListener: half handshakes of some users cost root none of his") {
  if (!IsRoot()) return;
  ListenerFixture fixture;
  fixture.config.handshake_timeout = std::chrono::seconds(60);
  REQUIRE(fixture.Start().ok());
  std::vector<UniqueFd> of_root;
  for (int i = 0; i < 100; ++i) of_root.push_back(fixture.Connect());
  // Few users with many, or one person with many user numbers.
  const auto [users, each] = GENERATE(std::pair(5, 80), std::pair(400, 1));
  const Crowd crowd(fixture.config.socket, kFirstUser, users, each, "RNGD");
  AttachAsRoot(fixture);
  int open = 0;
  for (const UniqueFd& socket : of_root) open += IsOpen(socket) ? 1 : 0;
  CHECK(open == 100);
}

TEST_CASE("AttachListener: gRPC connections of those who are not admitted leave room for root's") {
  if (!IsRoot()) return;
  ListenerFixture fixture;
  REQUIRE(fixture.Start().ok());
  const Crowd crowd(fixture.config.socket, kFirstUser, 600, 1, "PRI ");
  const UniqueFd socket = fixture.Connect();
  REQUIRE(::send(socket.get(), "PRI ", 4, MSG_NOSIGNAL) == 4);
  CHECK(fixture.WaitForGrpcConnections(1).size() == 1);
  CHECK(fixture.refused_grpc_count() == AttachListener::kMaxRefusedGrpcConnections);
}

TEST_CASE("AttachListener: who is an operator is known of every connection") {
  if (!IsRoot()) return;
  const std::string group = GENERATE("", "0");  // the crowd's group is root's
  ListenerFixture fixture;
  fixture.config.allowed_users = {"*"};
  fixture.config.operators_group = group;
  REQUIRE(fixture.Start().ok());
  const Crowd ringctl(fixture.config.socket, kFirstUser, 1, 1, "PRI ");
  const Crowd trainer(fixture.config.socket, kFirstUser, 1, 1, WholeRequest());
  AttachAsRoot(fixture);
  CHECK(fixture.WaitForGrpcConnections(3).size() == 3);
  for (const AdmittedUser& user : fixture.admitted()) {
    INFO(user.uid);
    CHECK(user.is_operator == (user.uid == 0 || group == "0"));
  }
}

TEST_CASE("AttachListener: a group of operators must exist") {
  ListenerFixture fixture;
  fixture.config.operators_group = "no-such-group";
  const absl::Status status = fixture.Start();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             Contains("operators_group: there is no group 'no-such-group'"));
}

}  // namespace
}  // namespace ringd
