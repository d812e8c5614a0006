// Jobs of two nodes and their coordinator that lose ranks or each other: what all ranks hear in the end. The
// test plays the network, and decides what arrives first.
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
#include "tests/daemon/fast_path/attached_rank.h"
#include "tests/daemon/jobs/coordinator/recorded_nodes.h"

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
    options.start_timeout = std::chrono::seconds(100);
    job = std::make_unique<Job>(options, transport.get(), now);
    job->UseLink(std::make_unique<RecordingLink>(sent), /*expects_challenge=*/false);
    v1::JoinRequest request;
    request.set_rank(index);
    request.set_size(2);
    request.set_local_size(1);
    job->Join(rank.session, request, [](const absl::Status&, const v1::JoinReply&) {});
  }

  void Submit(Clock::time_point now) {
    Registration tensor;
    tensor.communicator = CommunicatorId(7);
    tensor.name = "t";
    tensor.meta.shape = {1};
    tensor.bytes = 4;
    REQUIRE(job->Register(*rank.session, tensor).ok());
    CheckedSubmission submission;
    submission.registration =
        rank.session->FindRegistration(rank.session->Register(std::move(tensor)).value());
    submission.source = arena.data();
    submission.destination = arena.data();
    job->Submit(*rank.session, submission, now);
  }

  std::unique_ptr<Transport> transport;
  std::vector<v1::NodeMessage> sent;
  std::vector<std::byte> arena = std::vector<std::byte>(4);
  AttachedRank rank;
  std::unique_ptr<Job> job;
};

struct World {
  explicit World(bool in_flight = true) : coordinator(OptionsOf(2), &to_nodes, now) {
    CarryToCoordinator(0);
    CarryToCoordinator(1);
    CarryToNode(0);
    CarryToNode(1);
    for (Node& node : nodes) {
      REQUIRE(node.job->state() == Job::State::kRunning);
      if (in_flight) node.Submit(now);
    }
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

}  // namespace
}  // namespace ringd
