// Jobs of two nodes and their coordinator that lose ranks or each other: what all ranks hear in the
// end.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/jobs/two_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

TEST_CASE("Job: a rank's death is told to the coordinator, and to ranks when it has answered") {
  TwoNodes world;
  world.KillRank(1);
  CHECK(world.nodes[1].job->state() == Job::State::kRunning);
  CHECK(world.nodes[1].job->NeedsTicks());
  CHECK_FALSE(world.Ended(1));
  world.CarryToCoordinator(1);
  for (int node = 0; node < 2; ++node) {
    world.CarryToNode(node);
    CHECK(world.nodes[node].job->state() == Job::State::kFailed);
    CHECK(world.Ended(node));
    CHECK_THAT(world.CauseAt(node), StartsWith("rank 1, pid 1 on node1"));
  }
  CHECK(world.CauseAt(0) == world.CauseAt(1));
}

TEST_CASE("Job: one without ranks that waits for the coordinator's answer is not over") {
  TwoNodes world(/*in_flight=*/false);
  world.KillRank(1);
  CHECK_FALSE(world.nodes[1].job->Finished());
  world.CarryToCoordinator(1);
  world.CarryToNode(1);
  CHECK(world.nodes[1].job->Finished());
}

TEST_CASE("Job: of two deaths on two nodes all hear the one that the coordinator heard of first") {
  TwoNodes world;
  const int first = GENERATE(0, 1);
  world.KillRank(0);
  world.KillRank(1);
  world.CarryToCoordinator(first);
  world.CarryToCoordinator(1 - first);
  for (int node = 0; node < 2; ++node) {
    world.CarryToNode(node);
    CHECK(world.Ended(node));
    CHECK_THAT(world.CauseAt(node),
               StartsWith("rank " + std::to_string(first) + ", pid 1 on node"));
  }
  CHECK(world.CauseAt(0) == world.CauseAt(1));
}

TEST_CASE("Job: a node that waits for the coordinator's answer goes on with nothing") {
  TwoNodes world;
  const bool waits = GENERATE(true, false);
  if (waits) world.KillRank(1);
  const std::size_t before = world.nodes[1].sent.size();
  world.nodes[1].job->Advance(world.now);
  // Else it announces the tensor that its rank has submitted.
  CHECK(world.nodes[1].sent.size() - before == (waits ? 0 : 1));
}

TEST_CASE("Job: if the coordinator goes before it has answered, that is what the ranks hear") {
  TwoNodes world;
  world.KillRank(1);
  world.nodes[1].job->OnLinkLost(absl::UnavailableError("reset"));
  CHECK(world.Ended(1));
  CHECK_THAT(world.CauseAt(1), StartsWith("ringd on node0 (rank 0) ended or lost its connection"));
}

TEST_CASE("Job: a coordinator that does not answer is not waited for without end") {
  TwoNodes world;
  world.KillRank(1);
  const auto tick = [&](milliseconds time) { world.nodes[1].job->Tick(world.now + time); };
  tick(milliseconds(1000) + AgreedCause::kPatience - milliseconds(1));
  CHECK_FALSE(world.Ended(1));
  tick(milliseconds(1000) + AgreedCause::kPatience);
  CHECK(world.Ended(1));
  CHECK_THAT(world.CauseAt(1), Contains("rank 1, pid 1 on node1"));
}

// Its rank announces what it has submitted and leaves; then the other node has it as well.
TEST_CASE("Job: what a rank had announced before it left is not taken for its part; all hear why") {
  TwoNodes world;
  PlayedNode& leaver = world.nodes[1];
  leaver.job->Advance(world.now);
  world.CarryToCoordinator(1);
  REQUIRE(leaver.job->Leave(*leaver.rank.session, world.now));
  CHECK(leaver.rank.session->failed() == 1);  // cancelled: its memory is its own
  const std::shared_ptr<Session> session = leaver.rank.session;
  leaver.job->OnSessionLost(*session, "has gone", /*for_cause=*/false, world.now);
  leaver.job->Tick(world.now);
  // It is there to say so for a moment.
  CHECK_FALSE(leaver.job->Finished());
  CHECK(leaver.job->NeedsTicks());
  const bool comes_in_time = GENERATE(true, false);
  if (!comes_in_time) {
    leaver.job->Tick(world.now + std::chrono::seconds(1));
    CHECK(leaver.job->Finished());
    return;
  }
  world.CarryToCoordinator(1);
  world.nodes[0].job->Advance(world.now);
  world.CarryToCoordinator(0);
  world.coordinator.Advance(world.now);
  world.CarryToNode(1);
  leaver.job->Advance(world.now);
  world.CarryToCoordinator(1);
  world.CarryToNode(0);
  CHECK(world.Ended(0));
  CHECK(world.nodes[0].rank.session->failed() == 1);
  CHECK_THAT(world.CauseAt(0),
             StartsWith("rank 1, pid 1 on node1 left job 'job' (shutdown)") && Contains("'t'"));
}

TEST_CASE("Job: one that must end at once does so, and tells the coordinator once") {
  TwoNodes world;
  const bool knows = GENERATE(false, true);
  if (knows) world.KillRank(1);
  world.nodes[1].job->Fail(absl::AbortedError("ringd on node1 was stopped"));
  CHECK(world.Ended(1));
  CHECK(world.CauseAt(1) == "ringd on node1 was stopped");
  world.CarryToCoordinator(1);
  world.CarryToNode(0);
  CHECK_THAT(world.CauseAt(0), StartsWith(knows ? "rank 1, pid 1" : "ringd on node1 was stopped"));
}

TEST_CASE("Job: a rank that dies while the word is on its way that the job runs is the cause") {
  TwoNodes world(TwoNodes::kGathered);
  world.CarryToNode(0);
  REQUIRE(world.nodes[0].job->state() == Job::State::kRunning);
  PlayedNode& node = world.nodes[1];
  node.job->OnSessionLost(*node.rank.session, "has gone", /*for_cause=*/false, world.now);
  world.CarryToNode(1);
  // Nor does what the job that runs elsewhere does look like a mistake.
  v1::CoordinatorMessage schedule;
  schedule.mutable_schedule();
  node.job->OnCoordinatorMessage(schedule, world.now);
  CHECK(node.job->state() == Job::State::kJoining);
  node.job->Tick(world.now + std::chrono::seconds(1));
  world.CarryToCoordinator(1);
  world.CarryToNode(0);
  for (int index = 0; index < 2; ++index) {
    CHECK(world.CauseAt(index) == "rank 1, pid 1 on node1, has gone while job 'job' was starting");
  }
}

// What all ranks share is idle, and has gone first.
TEST_CASE("Job: one that fails with an operation on another communicator lets go of it") {
  TwoNodes world(/*in_flight=*/false);
  CommunicatorId communicators[2];
  world.MakePair(communicators);
  for (int index = 0; index < 2; ++index) {
    PlayedNode& node = world.nodes[index];
    node.Submit(world.now, communicators[index]);
    node.job->Advance(world.now);
    world.CarryToCoordinator(index);
  }
  world.coordinator.Advance(world.now);
  PlayedNode& node = world.nodes[0];
  world.CarryToNode(0);
  node.job->Advance(world.now);
  node.job->OnSessionLost(*node.rank.session, "has gone", /*for_cause=*/false, world.now);
  node.job->Fail(absl::AbortedError("ringd on node0 was stopped"));
  CHECK_FALSE(node.job->Finished());
  for (int ticks = 0; ticks < 3; ++ticks) {
    node.job->Tick(world.now += std::chrono::seconds(1));
    node.job->Advance(world.now);
  }
  CHECK(node.job->Finished());
}

// The one on all ranks is still in the network when the rank, who has not heard, submits on the
// other, which is idle and has gone.
TEST_CASE("Job: after its failure a late submission on a further communicator ends with that") {
  TwoNodes world(/*in_flight=*/false);
  CommunicatorId communicators[2];
  world.MakePair(communicators);
  PlayedNode& node = world.nodes[0];
  const CheckedSubmission late = node.Describe(communicators[0]);
  for (int index = 0; index < 2; ++index) {
    world.nodes[index].Submit(world.now);
    world.nodes[index].job->Advance(world.now);
    world.CarryToCoordinator(index);
  }
  world.coordinator.Advance(world.now);
  world.CarryToNode(0);
  node.job->Advance(world.now);
  node.job->Fail(absl::AbortedError("rank 1 has died"));
  node.job->Tick(world.now += std::chrono::milliseconds(50));
  const std::uint64_t before = node.rank.session->completed();
  node.job->Submit(*node.rank.session, late, world.now);
  CHECK(node.rank.session->completed() == before + 1);
}

}  // namespace
}  // namespace ringd
