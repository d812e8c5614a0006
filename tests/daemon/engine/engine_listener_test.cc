// What the engine tells whoever has started it.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/daemon/engine/called_engine.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

void Leave(Node& node, Trainer& trainer) {
  const auto left = Await<v1::LeaveReply>([&](Answer<v1::LeaveReply> answer) {
    node.engine->Leave({1000}, trainer.token, {}, std::move(answer));
  });
  REQUIRE(left.status.ok());
  trainer.lifeline.Reset();
}

TEST_CASE("EngineListener: hears of a job, of its end, of sessions, and when all has gone") {
  Node node;
  Trainer trainer = node.Join();
  CHECK(node.listener.Has("jobs 1"));  // before the answer
  Leave(node, trainer);
  CHECK(node.listener.Await("idle 1") ==
        Words{"generation 1", "jobs 1", "session 1", "job1 done", "jobs 0", "idle 1"});
  const std::vector<v1::Job> ended = node.listener.ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].uid() == 1000);
  CHECK(ended[0].ended_unix_seconds() >= ended[0].started_unix_seconds());
  CHECK(ended[0].local_members(0).state() == "left");

  // And again.
  Trainer next = node.Join();
  Leave(node, next);
  const Words told = node.listener.Await("idle 2");
  CHECK(told.back() == "idle 2");
  CHECK(told.size() == 12);
}

TEST_CASE("EngineListener: an engine that was given no session says nothing of its being idle") {
  Node node;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  node.engine->Stop();
  CHECK(node.listener.told().empty());
}

TEST_CASE("EngineListener: a session that breaks the protocol has ended for cause") {
  Node node;
  Trainer trainer = node.Join();
  trainer.submission_cursors->produced.store(1000);
  CHECK(node.listener.Await("jobs 0")[2] == "session 1 for cause");
  CHECK(node.listener.ended()[0].state() == "failed");
}

TEST_CASE("EngineListener: a stop ends all sessions, each once, also those without a job") {
  Node node;
  const Trainer joined = node.Join();
  const Trainer attached = node.Attach();
  node.engine->Stop();
  const Words told = node.listener.Await("session 2");
  CHECK(told == Words{"generation 1", "jobs 1", "session 1", "session 2"});
}

TEST_CASE("Engine: a session whose memory can't be mapped ends at once, and hears why") {
  Node node;
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  auto made = MakeSession(SessionId(7), {1 << 20, 16}, {::getpid(), 1000, 0}, ends->first.get());
  REQUIRE(made.ok());
  made->resources->lifeline = std::move(ends->first);
  made->resources->arena_bytes = 2 << 20;
  const std::string token = made->resources->token;
  node.engine->Attach(std::move(made->resources));
  CHECK(node.listener.Await("idle 1") == Words{"session 7", "idle 1"});
  CHECK(node.engine->Idle());
  std::string words(4096, '\0');
  pollfd entry{ends->second.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20'000) == 1);
  const ssize_t count = ::recv(ends->second.get(), words.data(), words.size(), 0);
  REQUIRE(count > 0);
  words.resize(static_cast<std::size_t>(count));
  CHECK_THAT(words, Contains("its memory can't be mapped") && Contains("1048576"));
  const auto joined = Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
    static_cast<void>(node.BeginJoin(token, node.JoinRequestOf(0, 1), std::move(answer)));
  });
  CHECK(absl::IsUnauthenticated(joined.status));
}

}  // namespace
}  // namespace ringd
