// Jobs of two nodes and their coordinator that lose ranks or each other: what all ranks hear in the
// end. The test plays the network, and decides what arrives first.
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/loopback/loopback_hub.h"
#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/job.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

class RecordingLink final : public CoordinatorLink {
 public:
  explicit RecordingLink(std::vector<v1::NodeMessage>& sent) : sent_(sent) {}
  void Send(v1::NodeMessage message) override { sent_.push_back(std::move(message)); }

 private:
  std::vector<v1::NodeMessage>& sent_;
};

// Its one rank submits a tensor, and waits.
struct Node {
  Node(LoopbackHub& hub, int index, Clock::time_point now) : transport(hub.CreateTransport()) {
    Job::Options options;
    options.job_id = "job";
    options.size = 2;
    options.local_size = 1;
    options.node_name = "node" + std::to_string(index);
    options.transport_address = transport->LocalAddress();
    options.communicator = CommunicatorId(7);
    options.next_communicator = [] { return CommunicatorId(8); };
    options.start_timeout = std::chrono::seconds(100);
    options.stall_warning = std::chrono::seconds(5);
    job = std::make_unique<Job>(options, transport.get(), now);
    job->UseLink(std::make_unique<RecordingLink>(sent));
    v1::JoinRequest request;
    request.set_rank(index);
    request.set_size(2);
    request.set_local_size(1);
    job->Join(rank.session, request, [](const absl::Status&, const v1::JoinReply&) {});
  }

  void Submit(Clock::time_point now, CommunicatorId communicator = CommunicatorId(7)) {
    job->Submit(*rank.session, Describe(communicator), now);
  }
  CheckedSubmission Describe(CommunicatorId communicator) {
    Registration tensor;
    tensor.communicator = communicator;
    tensor.name = "t";
    tensor.meta.shape = {1};
    tensor.bytes = 4;
    REQUIRE(job->Register(*rank.session, tensor).ok());
    CheckedSubmission submission;
    submission.registration =
        rank.session->FindRegistration(rank.session->Register(std::move(tensor)).value());
    submission.source = arena.data();
    submission.destination = arena.data();
    return submission;
  }

  // All that the rank has been told.
  std::string Told() const {
    std::string told(std::size_t{1} << 14, '\0');
    const ssize_t got = ::recv(rank.own_end.get(), told.data(), told.size(), MSG_DONTWAIT);
    told.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return told;
  }

  std::unique_ptr<Transport> transport;
  std::vector<v1::NodeMessage> sent;
  std::vector<std::byte> arena = std::vector<std::byte>(4);
  AttachedRank rank;
  std::unique_ptr<Job> job;
};

struct World {
  explicit World(bool in_flight = true) : World(kGathered) {
    CarryToNode(0);
    CarryToNode(1);
    for (Node& node : nodes) {
      REQUIRE(node.job->state() == Job::State::kRunning);
      if (in_flight) node.Submit(now);
    }
  }
  // The coordinator knows all ranks, and no node knows that yet.
  enum Gathered { kGathered };
  explicit World(Gathered) : coordinator(OptionsOf(2), &to_nodes, now) {
    CarryToCoordinator(0);
    CarryToCoordinator(1);
  }

  void CarryToCoordinator(int index) {
    const LinkId link = JoinedNodes::LinkOf(index);
    for (const v1::NodeMessage& message : std::exchange(nodes[index].sent, {})) {
      if (message.has_hello()) {
        coordinator.AddNode(link, message.hello(), now);
      } else {
        coordinator.OnMessage(link, message, now);
      }
    }
  }
  void CarryToNode(int index) {
    const std::vector<v1::CoordinatorMessage> messages = to_nodes.To(JoinedNodes::LinkOf(index));
    for (; carried[index] < messages.size(); ++carried[index]) {
      nodes[index].job->OnCoordinatorMessage(messages[carried[index]], now);
    }
  }
  // Its node has seen the end, and says no more of how it ended.
  void KillRank(int index) {
    const std::shared_ptr<Session> session = nodes[index].rank.session;
    nodes[index].job->OnSessionLost(*session, "has gone", /*for_cause=*/false, now);
    nodes[index].job->Tick(now + std::chrono::seconds(1));
  }
  // One of both ranks, beside that of all.
  void MakePair(CommunicatorId (&made)[2]) {
    for (int index = 0; index < 2; ++index) {
      v1::CreateCommunicatorRequest request;
      request.set_name("pair");
      for (const int rank : {0, 1}) request.add_ranks(rank);
      Node& node = nodes[index];
      node.job->CreateCommunicator(
          *node.rank.session, request,
          [&made, index](const absl::Status& status, const v1::CreateCommunicatorReply& reply) {
            CHECK(status.ToString() == "OK");
            made[index] = CommunicatorId(reply.communicator());
          });
      CarryToCoordinator(index);
    }
    for (const int index : {0, 1}) CarryToNode(index);
  }
  bool Ended(int index) { return nodes[index].rank.session->completed() == 1; }
  std::string CauseAt(int index) { return std::string(nodes[index].job->failure().message()); }

  Clock::time_point now = Clock::now();
  LoopbackHub hub;
  Node nodes[2] = {Node(hub, 0, now), Node(hub, 1, now)};
  RecordedNodes to_nodes;
  JobCoordinator coordinator;
  std::size_t carried[2] = {0, 0};
};

TEST_CASE("Job: a rank's death is told to the coordinator, and to ranks when it has answered") {
  World world;
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
  World world(/*in_flight=*/false);
  world.KillRank(1);
  CHECK_FALSE(world.nodes[1].job->Finished());
  world.CarryToCoordinator(1);
  world.CarryToNode(1);
  CHECK(world.nodes[1].job->Finished());
}

TEST_CASE("Job: of two deaths on two nodes all hear the one that the coordinator heard of first") {
  World world;
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
  World world;
  const bool waits = GENERATE(true, false);
  if (waits) world.KillRank(1);
  const std::size_t before = world.nodes[1].sent.size();
  world.nodes[1].job->Advance(world.now);
  // Else it announces the tensor that its rank has submitted.
  CHECK(world.nodes[1].sent.size() - before == (waits ? 0 : 1));
}

TEST_CASE("Job: if the coordinator goes before it has answered, that is what the ranks hear") {
  World world;
  world.KillRank(1);
  world.nodes[1].job->OnLinkLost(absl::UnavailableError("reset"));
  CHECK(world.Ended(1));
  CHECK_THAT(world.CauseAt(1), StartsWith("ringd on node0 (rank 0) ended or lost its connection"));
}

TEST_CASE("Job: a coordinator that does not answer is not waited for without end") {
  World world;
  world.KillRank(1);
  const auto tick = [&](milliseconds time) { world.nodes[1].job->Tick(world.now + time); };
  tick(milliseconds(1000) + AgreedCause::kPatience - milliseconds(1));
  CHECK_FALSE(world.Ended(1));
  tick(milliseconds(1000) + AgreedCause::kPatience);
  CHECK(world.Ended(1));
  CHECK_THAT(world.CauseAt(1), Contains("rank 1, pid 1 on node1"));
}

TEST_CASE("Job: that the coordinator does not say for whom ranks wait, they are told") {
  World world;
  Node& node = world.nodes[1];
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
  World world(/*in_flight=*/false);
  Node& node = world.nodes[1];
  const auto tick = [&](milliseconds time) { node.job->Tick(world.now + time); };
  v1::CreateCommunicatorRequest request;
  request.set_name("pair");
  for (const int rank : {0, 1}) request.add_ranks(rank);
  node.job->CreateCommunicator(*node.rank.session, request,
                               [](const absl::Status&, const v1::CreateCommunicatorReply&) {});
  REQUIRE(node.job->NeedsTicks());
  node.Told();
  tick(milliseconds(0));
  tick(milliseconds(4999));
  CHECK(node.Told().empty());
  tick(milliseconds(5000));
  CHECK_THAT(node.Told(),
             Contains("rank 1 is waiting since 5 s for communicator 'pair': rank 0 has not asked "
                      "for it, or ringd on node0 (rank 0) does not answer"));
  tick(milliseconds(9999));
  CHECK(node.Told().empty());
  tick(milliseconds(10'000));
  CHECK_THAT(node.Told(), Contains("since 10 s"));
}

// Its rank announces what it has submitted and leaves; then the other node has it as well.
TEST_CASE("Job: what a rank had announced before it left is not taken for its part; all hear why") {
  World world;
  Node& leaver = world.nodes[1];
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
  World world;
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
  World world(World::kGathered);
  world.CarryToNode(0);
  REQUIRE(world.nodes[0].job->state() == Job::State::kRunning);
  Node& node = world.nodes[1];
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
  World world(/*in_flight=*/false);
  CommunicatorId communicators[2];
  world.MakePair(communicators);
  for (int index = 0; index < 2; ++index) {
    Node& node = world.nodes[index];
    node.Submit(world.now, communicators[index]);
    node.job->Advance(world.now);
    world.CarryToCoordinator(index);
  }
  world.coordinator.Advance(world.now);
  Node& node = world.nodes[0];
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
  World world(/*in_flight=*/false);
  CommunicatorId communicators[2];
  world.MakePair(communicators);
  Node& node = world.nodes[0];
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
