// What ranks hear that wait for others, and for a coordinator that does not answer.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "tests/daemon/jobs/joining_node.h"
#include "tests/daemon/jobs/two_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

TEST_CASE("Job: that the coordinator does not say for whom ranks wait, they are told") {
  TwoNodes world;
  PlayedNode& node = world.nodes[1];
  const auto tick = [&](milliseconds time) { node.job->Tick(world.now + time); };
  node.Told();
  tick(milliseconds(5001));
  REQUIRE_FALSE(node.sent.empty());
  REQUIRE(node.sent.back().has_stall_report());
  SECTION("it answers") {
    v1::CoordinatorMessage message;
    message.mutable_stall_verdict()->set_text("waiting since 5.1 s: for somebody");
    message.mutable_stall_verdict()->add_tensors()->set_name("t");
    node.job->OnCoordinatorMessage(message, world.now + milliseconds(5100));
    CHECK_THAT(node.Told(), Contains("for somebody"));
    tick(milliseconds(7100));
    CHECK(node.Told().empty());
  }
  SECTION("it does not, and is asked again") {
    tick(milliseconds(7000));
    CHECK(node.Told().empty());
    tick(milliseconds(7001));
    CHECK_THAT(node.Told(),
               Contains("rank 1 is waiting since 7.0 s: ringd on node0 (rank 0) does not answer"));
    v1::QueuesReply queues;
    node.job->Describe(&queues, world.now + milliseconds(7001));
    REQUIRE(queues.queues(0).pending(0).waits_for_size() == 1);
    CHECK(queues.queues(0).pending(0).waits_for(0) == "node0");
    node.sent.clear();
    tick(milliseconds(10'000));
    CHECK(node.sent.empty());
    tick(milliseconds(14'100));
    REQUIRE(node.sent.size() == 1);
    CHECK(node.sent[0].has_stall_report());
    CHECK(world.nodes[1].job->state() == Job::State::kRunning);
  }
}

TEST_CASE("Job: a rank that waits for a communicator is told so, ever more rarely") {
  TwoNodes world(/*in_flight=*/false);
  PlayedNode& node = world.nodes[1];
  const auto tick = [&](milliseconds time) { node.job->Tick(world.now + time); };
  v1::CreateCommunicatorRequest request;
  request.set_name("pair");
  for (const int rank : {0, 1}) request.add_ranks(rank);
  node.job->CreateCommunicator(*node.rank.session, request,
                               [](const absl::Status&, const v1::CreateCommunicatorReply&) {});
  REQUIRE(node.job->NeedsTicks());
  node.Told();
  const auto answer = [&] {
    v1::CoordinatorMessage message;
    message.mutable_clock_pong();
    node.job->OnCoordinatorMessage(message, world.now);
  };
  tick(milliseconds(0));
  CHECK(node.sent.back().has_clock_ping());
  answer();
  tick(milliseconds(4999));
  CHECK(node.Told().empty());
  const bool answers = GENERATE(true, false);
  if (answers) answer();
  tick(milliseconds(answers ? 5000 : 6999));
  CHECK_THAT(node.Told(),
             answers ? Contains("rank 1 is waiting since 5 s for communicator 'pair': rank 0 has "
                                "not asked for it")
                     : Contains("rank 1 is waiting since 6 s for communicator 'pair': ringd on "
                                "node0 (rank 0) does not answer"));
  if (!answers) return;
  tick(milliseconds(9999));
  answer();
  CHECK(node.Told().empty());
  tick(milliseconds(10'000));
  CHECK_THAT(node.Told(), Contains("since 10 s"));
}

TEST_CASE("Job: of a coordinator that does not answer nobody believes who is missing") {
  JoiningNode node;
  CHECK_THAT(node.WaitsFor(milliseconds(0)), Contains("an answer of the ringd at 10.0.0.9:7117"));
  node.Hear({0, 2}, milliseconds(100));
  node.job->Tick(node.begin + milliseconds(100));
  REQUIRE(node.sent.back().has_clock_ping());
  CHECK(node.WaitsFor(milliseconds(2099)) == " 0 2");
  SECTION("it answers") {
    node.Answer(milliseconds(1000));
    CHECK(node.WaitsFor(milliseconds(5000)) == " 0 2");
    const std::size_t before = node.sent.size();
    node.job->Tick(node.begin + milliseconds(1099));
    CHECK(node.sent.size() == before);
    node.job->Tick(node.begin + milliseconds(1100));
    CHECK(node.sent.back().has_clock_ping());
  }
  SECTION("it does not, and is not asked again") {
    const std::size_t before = node.sent.size();
    node.job->Tick(node.begin + milliseconds(4100));
    CHECK(node.sent.size() == before);
    CHECK(node.WaitsFor(milliseconds(4100)) ==
          "the ringd at 10.0.0.9:7117, which has not answered for 4 s");
    node.job->Tick(node.begin + std::chrono::seconds(25));
    REQUIRE(node.job->state() == Job::State::kFailed);
    CHECK_THAT(std::string(node.job->failure().message()),
               Contains("it waits for the ringd at 10.0.0.9:7117, which has not answered"));
  }
}

TEST_CASE("Job: one whose ranks are all there is not too late because the nodes measure") {
  JoiningNode node;
  node.Hear({2}, milliseconds(100));
  node.Hear({}, milliseconds(19'900));
  CHECK(node.WaitsFor(milliseconds(19'900)) == "the nodes to measure the links between them");
  node.job->Tick(node.begin + std::chrono::seconds(20));
  node.Answer(milliseconds(20'001));
  node.job->Tick(node.begin + milliseconds(24'899));
  node.Answer(milliseconds(24'899));
  CHECK_FALSE(node.sent.back().has_failure());
  node.job->Tick(node.begin + milliseconds(24'900));
  CHECK(node.sent.back().has_failure());
}

}  // namespace
}  // namespace ringd
