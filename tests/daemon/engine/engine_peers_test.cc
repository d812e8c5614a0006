// Which nodes the engine lets into a job that it coordinates, and what it says to the others.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/attach/session_factory.h"
#include "daemon/engine/engine.h"
#include "daemon/jobs/membership/protocol_version.h"
#include "proto/base/unix_socket.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

constexpr auto kPatience = std::chrono::seconds(20);
constexpr uid_t kAlice = 1000;
const std::string kSecret = "a secret of many characters";

// Keeps what is sent to nodes; a test waits for it.
//
// Thread safety: any thread.
class AwaitedNetwork final : public PeerNetwork {
 public:
  void SetEvents(PeerEvents* events) override { events_ = events; }
  ExpectationId Expect(ExpectedJob job) override {
    const std::lock_guard lock(mutex_);
    expected_.push_back(std::move(job));
    changed_.notify_all();
    return ExpectationId(expected_.size());
  }
  void StopExpecting(ExpectationId /*job*/) override {}
  StreamId ConnectToCoordinator(CoordinatorAddress coordinator,
                                Clock::time_point /*deadline*/) override {
    const std::lock_guard lock(mutex_);
    connected_.push_back(std::move(coordinator));
    changed_.notify_all();
    return StreamId(1000);
  }
  void Send(StreamId /*stream*/, v1::NodeMessage /*message*/) override {}
  void Send(StreamId /*stream*/, v1::CoordinatorMessage message) override {
    const std::lock_guard lock(mutex_);
    to_node_.push_back(std::move(message));
    changed_.notify_all();
  }
  void Close(StreamId /*stream*/, absl::Status /*reason*/) override {}

  PeerEvents& events() { return *events_; }
  // The message with this number to any node.
  v1::CoordinatorMessage Await(std::size_t index) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, [&] { return to_node_.size() > index; }));
    return to_node_[index];
  }
  // The first job that is expected, and the first coordinator that is looked for.
  ExpectedJob AwaitExpected() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, [&] { return !expected_.empty(); }));
    return expected_[0];
  }
  CoordinatorAddress AwaitConnected() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, [&] { return !connected_.empty(); }));
    return connected_[0];
  }
  std::size_t expected() {
    const std::lock_guard lock(mutex_);
    return expected_.size();
  }

 private:
  PeerEvents* events_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::CoordinatorMessage> to_node_;
  std::vector<ExpectedJob> expected_;
  std::vector<CoordinatorAddress> connected_;
};

// The ringd of node-a, with one rank.
class Node {
 public:
  explicit Node(std::string cluster_key,
                std::chrono::milliseconds start_timeout = std::chrono::minutes(1))
      : cluster_key_(std::move(cluster_key)) {
    EngineOptions options;
    options.config.node_name = "node-a";
    options.config.start_timeout = start_timeout;
    options.own_addresses = {"10.0.0.9:7117", "node-a:7117"};
    options.has_cluster_key = !cluster_key_.empty();
    engine_ = std::make_unique<Engine>(std::move(options), nullptr, nullptr, &network);
    engine_->Start();
    auto ends = UnixSocketPair();
    REQUIRE(ends.ok());
    auto made =
        MakeSession(SessionId(1), {1 << 20, 16}, {::getpid(), kAlice, 0}, ends->first.get());
    REQUIRE(made.ok());
    made->resources->lifeline = std::move(ends->first);
    lifeline_ = std::move(ends->second);
    token_ = made->resources->token;
    engine_->Attach(std::move(made->resources));
  }
  // What the rank hears, now or later.
  std::future<absl::Status> Join(int local_size, const std::string& secret,
                                 const std::string& rendezvous = "") {
    v1::JoinRequest request;
    request.set_job_id("train");
    request.set_size(2);
    request.set_local_size(local_size);
    request.set_secret(secret);
    request.set_rendezvous(rendezvous);
    auto promise = std::make_shared<std::promise<absl::Status>>();
    static_cast<void>(engine_->Join({kAlice}, token_, request,
                                    JobKey(cluster_key_, "train", secret, kAlice),
                                    [promise](const absl::Status& status, const v1::JoinReply&) {
                                      promise->set_value(status);
                                    }));
    return promise->get_future();
  }

  Engine& engine() { return *engine_; }

  AwaitedNetwork network;

 private:
  const std::string cluster_key_;
  std::unique_ptr<Engine> engine_;
  UniqueFd lifeline_;
  std::string token_;
};

v1::NodeMessage HelloOfB() {
  v1::NodeMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(kPeerProtocolVersion);
  hello.set_job_id("train");
  hello.set_uid(kAlice);
  hello.set_size(2);
  hello.set_local_size(1);
  hello.set_node_name("node-b");
  return message;
}

DoorKey KeyOf(const std::string& cluster_key, const std::string& secret) {
  return KeyForControl(JobKey(cluster_key, "train", secret, kAlice));
}

// What the node hears of whom the network has let in, after this Hello.
v1::CoordinatorMessage AnswerTo(Node& node, const v1::NodeMessage& hello) {
  node.network.AwaitExpected();
  node.network.events().OnNodeConnected(StreamId(1), ExpectationId(1), "node-b at 10.0.0.2");
  node.network.events().OnNodeMessage(StreamId(1), hello, nullptr);
  return node.network.Await(0);
}

TEST_CASE("Engine: lets in who has the key of a job that it coordinates") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret);
  const ExpectedJob expected = node.network.AwaitExpected();
  CHECK(expected.job_id == "train");
  CHECK(expected.uid == kAlice);
  CHECK(expected.key == KeyOf("cluster", kSecret));
  CHECK(expected.has_secret);
  CHECK_FALSE(expected.one_node_only);
}

TEST_CASE("Engine: a node that is refused is named to the job's ranks, with the likely reason") {
  Node node("cluster", std::chrono::milliseconds(300));
  auto joined = node.Join(1, GENERATE(std::string(), kSecret));
  const ExpectedJob expected = node.network.AwaitExpected();
  RefusedNode refused{"node-b", "node-b at 10.0.0.2 port 4000", kAlice, false};
  std::string words = "the ringd on node-b has no cluster key";
  SECTION("no cluster key") {}
  SECTION("another key") {
    refused.has_cluster_key = true;
    words = "the ringd on node-b has another cluster key";
  }
  SECTION("another user") {
    refused.uid = kAlice + 1;
    if (!expected.has_secret) words = "are of uid 1001";
  }
  node.network.events().OnNodeRefused(ExpectationId(1), refused);
  REQUIRE(joined.wait_for(kPatience) == std::future_status::ready);
  CHECK_THAT(std::string(joined.get().message()),
             Contains("rank 1 did not join") && Contains("turned away") && Contains(words));
}

TEST_CASE("Engine: names both protocol versions to a node that speaks another one") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret);
  v1::NodeMessage hello = HelloOfB();
  hello.mutable_hello()->set_protocol_version(kPeerProtocolVersion - 1);
  CHECK_THAT(AnswerTo(node, hello).failure().text(),
             Contains("protocol " + std::to_string(kPeerProtocolVersion - 1)) &&
                 Contains("speaks " + std::to_string(kPeerProtocolVersion)));
}

TEST_CASE("Engine: a node that comes when all ranks have joined is told so, not kept waiting") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret);
  node.network.AwaitExpected();
  PeerEvents& events = node.network.events();
  v1::NodeMessage rank;
  rank.mutable_rank_joined()->mutable_rank()->set_rank(1);
  for (const StreamId stream : {StreamId(1), StreamId(2)}) {
    events.OnNodeConnected(stream, ExpectationId(1), "a node");
  }
  events.OnNodeMessage(StreamId(1), HelloOfB(), nullptr);
  events.OnNodeMessage(StreamId(1), rank, nullptr);
  v1::NodeMessage late = HelloOfB();
  late.mutable_hello()->set_node_name("node-c");
  events.OnNodeMessage(StreamId(2), late, nullptr);
  for (std::size_t message = 0;; ++message) {
    const std::string told = node.network.Await(message).failure().text();
    if (told.find("has started without") != std::string::npos) break;
  }
}

TEST_CASE("Engine: a node of the job that says something else first is turned away") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret);
  v1::NodeMessage message = HelloOfB();
  std::string words;
  SECTION("no Hello") {
    message.mutable_ranks_left();
    words = "the first message must be a Hello";
  }
  SECTION("the Hello of another job") {
    message.mutable_hello()->set_job_id("other");
    words = "another job";
  }
  CHECK_THAT(AnswerTo(node, message).failure().text(), Contains(words));
}

TEST_CASE("Engine: a job of one node lets no other node in, and says so") {
  Node node("cluster", std::chrono::milliseconds(300));
  auto joined = node.Join(2, kSecret);
  CHECK(node.network.AwaitExpected().one_node_only);
  node.network.events().OnNodeRefused(ExpectationId(1), {"node-b", "node-b", kAlice, true});
  REQUIRE(joined.wait_for(kPatience) == std::future_status::ready);
  CHECK_THAT(std::string(joined.get().message()), Contains("has one node"));
}

TEST_CASE("Engine: lets nobody in to a job that is coordinated elsewhere, and goes there") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret, "10.0.0.7:7117");
  const CoordinatorAddress coordinator = node.network.AwaitConnected();
  CHECK(coordinator.host_port == "10.0.0.7:7117");
  CHECK(coordinator.key == KeyOf("cluster", kSecret));
  CHECK(node.network.expected() == 0);
}

TEST_CASE("Engine: knows its own address, and learns that another one is its own, too") {
  Node node("cluster");
  const bool is_known = GENERATE(true, false);
  const auto joined = node.Join(1, kSecret, is_known ? "node-a:7117" : "alias:7117");
  if (!is_known) {
    node.network.AwaitConnected();
    node.network.events().OnCoordinatorIsHere(StreamId(1000));
  }
  CHECK(node.network.AwaitExpected().job_id == "train");
}

TEST_CASE("Engine: the ranks hear who was turned away before he came to the engine") {
  Node node("cluster", std::chrono::milliseconds(300));
  node.engine().NoteTurnedAway("this comes before there is a job");
  auto joined = node.Join(2, "");
  node.network.AwaitExpected();
  node.engine().NoteTurnedAway("rank 1 asks for weight 7");
  REQUIRE(joined.wait_for(kPatience) == std::future_status::ready);
  CHECK_THAT(std::string(joined.get().message()), Contains("rank 1 did not join") &&
                                                      Contains("rank 1 asks for weight 7") &&
                                                      !Contains("before there is a job"));
}

TEST_CASE("Engine: a drain ends a job that gathers ranks") {
  Node node("cluster");
  auto joined = node.Join(2, "");
  node.network.AwaitExpected();
  node.engine().SetDraining(true);
  REQUIRE(joined.wait_for(kPatience) == std::future_status::ready);
  CHECK_THAT(std::string(joined.get().message()), Contains("ringd on node-a is draining"));
}

TEST_CASE("Engine: a join that comes behind the drain hears so, and waits for nobody") {
  Node node("cluster");
  node.engine().SetDraining(true);
  auto late = node.Join(2, "");
  REQUIRE(late.wait_for(kPatience) == std::future_status::ready);
  const absl::Status status = late.get();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == "ringd on node-a is draining: it takes no new jobs");
  // Once that is undone a job gathers ranks again.
  node.engine().SetDraining(false);
  auto again = node.Join(2, "");
  node.network.AwaitExpected();
}

}  // namespace
}  // namespace ringd
