// A user database that does not answer: who waits for it, and who does not.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/daemon/attach/listener_fixture.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uid_t kSomebody = 54'321;

// Answers when it is told to. Outlives the listener: its threads may wait for it still.
struct Database {
  UserQuestions::Ask Ask(const std::shared_ptr<Database>& self) {
    return [self](const Admission&, const PeerCredentials& peer) {
      ++self->questions;
      self->answered.wait();
      return UserVerdict{peer.uid == kSomebody + 1 ? absl::PermissionDeniedError("not in it")
                                                   : absl::OkStatus()};
    };
  }
  std::promise<void> answer;
  std::shared_future<void> answered{answer.get_future()};
  std::atomic<int> questions{0};
};

struct SlowFixture : ListenerFixture {
  SlowFixture() {
    config.allowed_groups = {"4321"};
    ask_user = database->Ask(database);
  }
  ~SlowFixture() {
    if (!told) database->answer.set_value();
  }
  void Answer() {
    told = true;
    database->answer.set_value();
  }

  std::shared_ptr<Database> database = std::make_shared<Database>();
  bool told = false;
};

// A process of another user that attaches.
struct Attaching {
  Attaching(const std::string& path, uid_t uid) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    words = UniqueFd(ends[0]);
    const UniqueFd writer(ends[1]);
    pid = ::fork();
    if (pid != 0) return;
    if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(100);
    const auto socket = ConnectUnix(path, InSeconds(10));
    if (!socket.ok()) ::_exit(101);
    const auto answer = RequestAttach(socket->get());
    if (!answer.ok()) ::_exit(102);
    const std::string text = answer->text();
    static_cast<void>(!::write(writer.get(), text.data(), text.size()));
    ::_exit(static_cast<int>(answer->reply.status));
  }
  bool Waits() const { return ::waitpid(pid, nullptr, WNOHANG) == 0; }
  absl::StatusCode Code() const {
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFEXITED(status));
    return static_cast<absl::StatusCode>(WEXITSTATUS(status));
  }
  std::string Text() const {
    char text[512];
    const ssize_t count = ::read(words.get(), text, sizeof(text));
    return {text, static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
  }

  UniqueFd words;
  pid_t pid = 0;
};

bool Asked(const SlowFixture& fixture, int count) {
  for (int i = 0; i < 1000 && fixture.database->questions < count; ++i) ::usleep(10'000);
  return fixture.database->questions == count;
}

TEST_CASE("AttachListener: who is known at sight does not wait for a user database that hangs") {
  if (::geteuid() != 0) return;
  SlowFixture fixture;
  fixture.config.handshake_timeout = seconds(60);
  REQUIRE(fixture.Start().ok());
  const Attaching waiting(fixture.config.socket, kSomebody);
  const Attaching refused(fixture.config.socket, kSomebody + 1);
  REQUIRE(Asked(fixture, 2));
  const Clock::time_point began = Clock::now();
  const UniqueFd own = fixture.Connect();
  CHECK(RequestAttach(own.get())->code() == absl::StatusCode::kOk);
  const UniqueFd tool = fixture.Connect();
  REQUIRE(::send(tool.get(), "PRI * HTTP/2.0", 14, MSG_NOSIGNAL) == 14);
  CHECK(fixture.WaitForGrpcConnections(2).size() == 2);
  CHECK(Clock::now() - began < seconds(30));
  CHECK(waiting.Waits());
  fixture.Answer();
  CHECK(waiting.Code() == absl::StatusCode::kOk);
  CHECK(refused.Code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(refused.Text(), Contains("not in it"));
}

TEST_CASE("AttachListener: who waits for a database in vain hears so after handshake_timeout") {
  if (::geteuid() != 0) return;
  SlowFixture fixture;
  fixture.config.handshake_timeout = milliseconds(300);
  REQUIRE(fixture.Start().ok());
  const Attaching waiting(fixture.config.socket, kSomebody);
  CHECK(waiting.Code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(waiting.Text(), Contains("user database has not said in time"));
  CHECK(fixture.refused() == 1);
  // Nor is the end held up.
  const Clock::time_point began = Clock::now();
  fixture.listener.reset();
  CHECK(Clock::now() - began < seconds(10));
}

TEST_CASE(
    "AttachListener: one question is put for all connections of a user, and its answer kept") {
  if (::geteuid() != 0) return;
  SlowFixture fixture;
  REQUIRE(fixture.Start().ok());
  const Attaching first(fixture.config.socket, kSomebody);
  const Attaching second(fixture.config.socket, kSomebody);
  REQUIRE(Asked(fixture, 1));
  ::usleep(100'000);
  CHECK(fixture.database->questions == 1);
  fixture.Answer();
  CHECK(first.Code() == absl::StatusCode::kOk);
  CHECK(second.Code() == absl::StatusCode::kOk);
  const Attaching third(fixture.config.socket, kSomebody);
  CHECK(third.Code() == absl::StatusCode::kOk);
  CHECK(fixture.database->questions == 1);
  // By other settings it is another question.
  REQUIRE(fixture.Reload(fixture.config).ok());
  const Attaching fourth(fixture.config.socket, kSomebody);
  CHECK(fourth.Code() == absl::StatusCode::kOk);
  CHECK(fixture.database->questions == 2);
}

TEST_CASE("UserQuestions: a user with many groups has few questions under way") {
  const auto database = std::make_shared<Database>();
  const auto admission = std::make_shared<Admission>(*Admission::Create(Config()));
  std::atomic<int> answers{0};
  UserQuestions questions(database->Ask(database), [&] { ++answers; });
  for (gid_t group = 1; group < 10; ++group) {
    CHECK_FALSE(questions.Find(admission, {1, kSomebody, group}).has_value());
  }
  // Another user's is asked, too.
  CHECK_FALSE(questions.Find(admission, {1, kSomebody + 1, 1}).has_value());
  for (int i = 0; i < 1000 && database->questions < 3; ++i) ::usleep(10'000);
  ::usleep(50'000);
  CHECK(database->questions == 3);
  database->answer.set_value();
  for (int i = 0; i < 1000 && answers < 3; ++i) ::usleep(10'000);
  CHECK(answers == 3);
  CHECK(questions.Find(admission, {1, kSomebody, 1})->admitted.ok());
  CHECK_FALSE(questions.Find(admission, {1, kSomebody + 1, 1})->admitted.ok());
}

}  // namespace
}  // namespace ringd
