// Jobs of two nodes that open a rank exchange: from the membership to the answer to the joins, and
// who is waited for.
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/loopback/loopback_hub.h"
#include "daemon/jobs/job.h"
#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"
#include "tests/daemon/jobs/recording_link.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"
#include "tests/daemon/lanes/rank_exchange/opening_nodes.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanksPerNode = 2;

struct Rank : AttachedRank {
  std::optional<absl::Status> answer;
  v1::JoinReply reply;
};

struct Node {
  Node(LoopbackHub& hub, int index) : transport(hub.CreateTransport()) {
    Job::Options options;
    options.job_id = "train";
    options.size = 2 * kRanksPerNode;
    options.local_size = kRanksPerNode;
    options.node_name = index == 0 ? "node-a" : "node-b";
    options.transport_address = transport->LocalAddress();
    options.communicator = CommunicatorId(7);
    options.stall_warning = seconds(5);
    options.start_timeout = seconds(100);
    options.rank_exchange = opened.sockets.get();
    job = std::make_unique<Job>(options, transport.get(), Clock::now());
    job->UseLink(std::make_unique<RecordingLink>(sent));
    for (int m = 0; m < kRanksPerNode; ++m) {
      v1::JoinRequest request;
      request.set_rank(kRanksPerNode * index + m);
      request.set_local_rank(m);
      request.set_size(options.size);
      request.set_local_size(options.local_size);
      job->Join(ranks[m].session, request,
                [this, m](const absl::Status& status, const v1::JoinReply& reply) {
                  ranks[m].answer = status;
                  ranks[m].reply = reply;
                });
    }
  }
  ~Node() { job.reset(); }

  bool Answered() const { return ranks[0].answer.has_value() && ranks[1].answer.has_value(); }
  v1::Communicator Shown() const {
    v1::CommunicatorsReply shown;
    job->Describe(&shown, Clock::now());
    return shown.communicators(0);
  }

  std::unique_ptr<Transport> transport;
  OpenedDoor opened{"node"};
  std::vector<v1::NodeMessage> sent;
  Rank ranks[kRanksPerNode];
  std::unique_ptr<Job> job;
};

struct Nodes {
  v1::Membership MembershipOf(int index) {
    v1::Membership membership;
    membership.set_wire_id(99);
    membership.set_chunk_bytes(4096);
    membership.set_node_index(index);
    membership.mutable_rank_exchange()->set_offered(true);
    membership.mutable_rank_exchange()->set_limit_bytes(4096);
    membership.mutable_rank_exchange()->set_flat_bytes(4096);
    for (int n = 0; n < 2; ++n) {
      v1::NodeMember& node = *membership.add_nodes();
      node.set_node_name(n == 0 ? "node-a" : "node-b");
      node.set_transport_address(nodes[n].transport->LocalAddress());
      node.set_rank_exchange_address(nodes[n].opened.sockets->address());
      for (int m = 0; m < kRanksPerNode; ++m) {
        v1::RankInfo& rank = *node.add_ranks();
        rank.set_rank(kRanksPerNode * n + m);
        rank.set_local_rank(m);
      }
    }
    return membership;
  }
  void Begin(int index) { Begin(index, MembershipOf(index)); }
  void Begin(int index, const v1::Membership& membership) {
    v1::CoordinatorMessage message;
    *message.mutable_membership() = membership;
    nodes[index].job->OnCoordinatorMessage(message, now);
  }
  void Advance() {
    for (Node& node : nodes) {
      node.opened.sockets->Advance();
      node.job->Advance(now);
    }
  }
  // As long as things move, but not for ever.
  template <typename Done>
  bool AdvanceUntil(Done done) {
    const Clock::time_point deadline = Clock::now() + seconds(20);
    while (!done()) {
      if (Clock::now() > deadline) return false;
      Advance();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

  LoopbackHub hub;
  Node nodes[2] = {Node(hub, 0), Node(hub, 1)};
  Clock::time_point now = Clock::now();
};

TEST_CASE("Job: says in its Hello where it listens, if it takes part in a rank exchange") {
  Nodes nodes;
  REQUIRE_FALSE(nodes.nodes[0].sent.empty());
  CHECK(nodes.nodes[0].sent[0].hello().rank_exchange_address() ==
        nodes.nodes[0].opened.sockets->address());
}

TEST_CASE("Job: answers the joins when the rank exchange is open") {
  Nodes nodes;
  nodes.Begin(0);
  for (int turn = 0; turn < 10; ++turn) nodes.Advance();
  CHECK_FALSE(nodes.nodes[0].Answered());
  CHECK(nodes.nodes[0].job->NeedsTicks());
  CHECK(nodes.nodes[0].Shown().rank_exchange().why_not() == "it is being opened");
  nodes.Begin(1);
  REQUIRE(
      nodes.AdvanceUntil([&] { return nodes.nodes[0].Answered() && nodes.nodes[1].Answered(); }));
  for (const Node& node : nodes.nodes) {
    for (const Rank& rank : node.ranks) {
      CHECK(rank.answer->ok());
      CHECK(rank.reply.rank_exchange_connections() == 2);
      CHECK(rank.WasSentAnything());
    }
    CHECK(node.Shown().rank_exchange().open());
    CHECK(node.Shown().rank_exchange().limit_bytes() == 4096);
    CHECK(node.job->NextTick(nodes.now) <= nodes.now + RankExchangeWatch::kLookInterval);
  }
}

TEST_CASE("Job: runs without a rank exchange if a node does not come, and says why") {
  Nodes nodes;
  nodes.Begin(0);
  for (int turn = 0; turn < 10; ++turn) nodes.Advance();
  CHECK_FALSE(nodes.nodes[0].Answered());
  nodes.now += RankExchangeSetup::kPatience;
  nodes.Advance();
  const Node& node = nodes.nodes[0];
  REQUIRE(node.Answered());
  CHECK(node.job->state() == Job::State::kRunning);
  CHECK(node.ranks[0].answer->ok());
  CHECK(node.ranks[0].reply.rank_exchange_connections() == 0);
  CHECK_FALSE(node.ranks[0].WasSentAnything());
  CHECK_FALSE(node.Shown().rank_exchange().open());
  CHECK_THAT(node.Shown().rank_exchange().why_not(), Contains("no connection came from node-b"));
}

TEST_CASE("Job: answers at once if no rank exchange is offered, and passes on why") {
  Nodes nodes;
  v1::Membership membership = nodes.MembershipOf(1);
  membership.mutable_rank_exchange()->clear_offered();
  membership.mutable_rank_exchange()->set_why_not("ringd on node-a takes no part");
  nodes.Begin(1, membership);
  REQUIRE(nodes.nodes[1].Answered());
  CHECK(nodes.nodes[1].ranks[0].answer->ok());
  CHECK(nodes.nodes[1].Shown().rank_exchange().why_not() == "ringd on node-a takes no part");
}

TEST_CASE("Job: one that fails while its rank exchange is opened answers with that") {
  Nodes nodes;
  nodes.Begin(0);
  nodes.Begin(1);
  nodes.nodes[0].job->Fail(absl::AbortedError("the first cause"));
  REQUIRE(nodes.nodes[0].Answered());
  CHECK(nodes.nodes[0].ranks[0].answer->message() == "the first cause");
  nodes.now += RankExchangeSetup::kPatience + RankExchangeSetup::kGrace;
  REQUIRE(nodes.AdvanceUntil([&] { return nodes.nodes[1].Answered(); }));
  CHECK(nodes.nodes[1].ranks[0].answer->ok());
  CHECK(nodes.nodes[1].ranks[0].reply.rank_exchange_connections() == 0);
}

// Both nodes' ranks have what ringd hands them, and a tensor.
struct OpenNodes : Nodes {
  OpenNodes() {
    Begin(0);
    Begin(1);
    REQUIRE(AdvanceUntil([&] { return nodes[0].Answered() && nodes[1].Answered(); }));
    for (Node& node : nodes) {
      for (Rank& rank : node.ranks) {
        rank.Attach(2, rank.reply.rank_exchange_connections());
        Registration loss;
        loss.communicator = CommunicatorId(7);
        loss.name = "loss";
        loss.bytes = 4;
        REQUIRE(node.job->Register(*rank.session, loss).ok());
        const RegistrationId number = rank.session->Register(std::move(loss));
        CHECK(number == RegistrationId(0));
      }
    }
  }

  void TickFor(milliseconds time) {
    for (const Clock::time_point until = now + time; now < until;) {
      now += milliseconds(100);
      for (Node& node : nodes) node.job->Tick(now);
    }
  }
  // Of one node's ranks, those that have not submitted "loss", as it answers the coordinator.
  std::vector<int> MissingAt(int index) {
    v1::CoordinatorMessage message;
    message.mutable_stall_inquiry()->add_tensors("loss");
    nodes[index].job->OnCoordinatorMessage(message, now);
    REQUIRE(nodes[index].sent.back().has_stall_answer());
    std::vector<int> missing;
    for (const v1::MissingRank& rank : nodes[index].sent.back().stall_answer().missing()) {
      missing.push_back(rank.rank());
    }
    return missing;
  }
  v1::QueuesReply QueuesOf(int index) const {
    v1::QueuesReply queues;
    nodes[index].job->Describe(&queues, now);
    return queues;
  }
};

TEST_CASE(
    "Job: of an operation in the rank exchange that hangs, names who was stopped, and nobody "
    "else") {
  OpenNodes open;
  Node& node = open.nodes[1];
  constexpr RankExchangeKey kKey{4711, 0};
  std::uint32_t cell = 0;
  CHECK(open.MissingAt(1) == std::vector<int>{2, 3});
  CHECK_FALSE(node.job->NeedsTicks());
  // Rank 3 takes the driver's role and moves no more; rank 2 waits for it.
  REQUIRE(node.ranks[1].exchange->BecomeDriver());
  REQUIRE(node.ranks[0].Contribute(kKey, 0, cell) == RankExchangeOutcome::kPending);
  REQUIRE(node.ranks[1].Contribute(kKey, 0, cell) == RankExchangeOutcome::kPending);
  node.sent.clear();
  open.TickFor(milliseconds(4500));
  CHECK(node.job->NeedsTicks());
  CHECK(node.sent.empty());
  open.TickFor(milliseconds(1500));
  REQUIRE(node.sent.size() == 1);
  REQUIRE(node.sent[0].stall_report().tensors_size() == 1);
  CHECK(node.sent[0].stall_report().tensors(0) == "loss");
  CHECK(open.MissingAt(1) == std::vector<int>{3});
  CHECK(open.MissingAt(0) == std::vector<int>{0, 1});

  const v1::QueuesReply queues = open.QueuesOf(1);
  REQUIRE(queues.queues_size() == 2);
  REQUIRE(queues.queues(0).pending_size() == 1);
  CHECK(queues.queues(0).pending(0).name() == "loss");
  REQUIRE(queues.queues(0).pending(0).waits_for_size() == 1);
  CHECK_THAT(queues.queues(0).pending(0).waits_for(0), Contains("rank 3, pid 1 on node-b"));
  CHECK(queues.queues(1).pending_size() == 0);
}

TEST_CASE("Job: wants to fail if the hub is lost while a rank waits for its decision") {
  OpenNodes open;
  std::uint32_t cell = 0;
  constexpr RankExchangeKey kKey{4711, 0};
  bool waits = false;
  SECTION("a rank waits") {
    waits = true;
    for (Rank& rank : open.nodes[1].ranks) {
      REQUIRE(rank.Contribute(kKey, 0, cell) == RankExchangeOutcome::kPending);
    }
  }
  SECTION("nobody waits") {}
  for (Rank& rank : open.nodes[0].ranks) rank.exchange.reset();
  open.nodes[0].job.reset();
  const auto tick = [&](int times) {
    for (int i = 0; i < times; ++i) {
      open.now += milliseconds(100);
      open.nodes[1].job->Tick(open.now);
    }
  };
  tick(5);
  CHECK(open.nodes[1].job->state() == Job::State::kRunning);
  tick(10);
  const Node& node = open.nodes[1];
  CHECK(node.job->state() == Job::State::kRunning);
  const bool told = !node.sent.empty() && node.sent.back().has_failure();
  CHECK(told == waits);
  if (waits) {
    // The coordinator was on the lost node.
    tick(static_cast<int>(AgreedCause::kPatience / milliseconds(100)) + 1);
    CHECK(node.job->state() == Job::State::kFailed);
    CHECK_THAT(std::string(node.job->failure().message()),
               Contains("the connection of the rank exchange to node-a (ranks 0, 1): ") &&
                   Contains("while 1 tensor was in flight ('loss')"));
  } else {
    CHECK_FALSE(node.Shown().rank_exchange().open());
    CHECK_THAT(node.Shown().rank_exchange().why_not(), Contains("node-a (ranks 0, 1)"));
  }
}

}  // namespace
}  // namespace ringd
