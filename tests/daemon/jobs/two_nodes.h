// A job of two nodes with a rank each, and its coordinator. The test plays the network: it decides
// what arrives when.
#ifndef RINGD_TESTS_DAEMON_JOBS_TWO_NODES_H_
#define RINGD_TESTS_DAEMON_JOBS_TWO_NODES_H_

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
#include "tests/daemon/jobs/recording_link.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {

// Its one rank submits a tensor, and waits.
struct PlayedNode {
  PlayedNode(LoopbackHub& hub, int index, Clock::time_point now)
      : transport(hub.CreateTransport()) {
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

struct TwoNodes {
  explicit TwoNodes(bool in_flight = true) : TwoNodes(kGathered) {
    CarryToNode(0);
    CarryToNode(1);
    for (PlayedNode& node : nodes) {
      REQUIRE(node.job->state() == Job::State::kRunning);
      if (in_flight) node.Submit(now);
    }
  }
  // The coordinator knows all ranks, and no node knows that yet.
  enum Gathered { kGathered };
  explicit TwoNodes(Gathered) : coordinator(OptionsOf(2), &to_nodes, now) {
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
      PlayedNode& node = nodes[index];
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
  PlayedNode nodes[2] = {PlayedNode(hub, 0, now), PlayedNode(hub, 1, now)};
  RecordedNodes to_nodes;
  JobCoordinator coordinator;
  std::size_t carried[2] = {0, 0};
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_JOBS_TWO_NODES_H_
