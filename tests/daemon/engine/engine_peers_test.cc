// Which nodes the engine lets into a job that it coordinates, and what it says to the others.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
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
const std::string kNodeNonce(kJobNonceBytes, 'n');

// Keeps what is sent to nodes; a test waits for it.
//
// Thread safety: any thread.
class AwaitedNetwork final : public PeerNetwork {
 public:
  void SetEvents(PeerEvents* events) override { events_ = events; }
  StreamId ConnectToCoordinator(const std::string& /*host_port*/,
                                Clock::time_point /*deadline*/) override {
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
  std::size_t sent_to_nodes() {
    const std::lock_guard lock(mutex_);
    return to_node_.size();
  }

 private:
  PeerEvents* events_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::CoordinatorMessage> to_node_;
};

// The ringd of node-a, with one rank.
class Node {
 public:
  explicit Node(const std::string& cluster_key, bool insecure_peers = false) {
    char folder[] = "/tmp/ringd-XXXXXX";
    folder_ = mkdtemp(folder);
    EngineOptions options;
    options.config.node_name = "node-a";
    options.config.state_dir = folder_;
    options.config.insecure_peers = insecure_peers;
    options.peer_address = "10.0.0.9:7117";
    options.cluster_key = cluster_key;
    engine_ = std::make_unique<Engine>(options, nullptr, nullptr, &network);
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
  ~Node() {
    engine_.reset();
    std::filesystem::remove_all(folder_);
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
                                    [promise](const absl::Status& status, const v1::JoinReply&) {
                                      promise->set_value(status);
                                    }));
    return promise->get_future();
  }

  AwaitedNetwork network;

 private:
  std::string folder_;
  std::unique_ptr<Engine> engine_;
  UniqueFd lifeline_;
  std::string token_;
};

v1::NodeMessage HelloUnder(const std::string& cluster_key, const std::string& secret,
                           const std::string& nonce) {
  v1::NodeMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(kPeerProtocolVersion);
  hello.set_job_id("train");
  hello.set_uid(kAlice);
  hello.set_size(2);
  hello.set_local_size(1);
  hello.set_node_name("node-b");
  hello.set_nonce(kNodeNonce);
  hello.set_has_cluster_key(!cluster_key.empty());
  hello.set_proof(NodeProof(KeyForControl(JobKey(cluster_key, "train", secret)),
                            {nonce, kNodeNonce, "train", "node-b"}));
  return message;
}

// Connects; the nonce of the challenge.
std::string Connect(Node& node, StreamId stream, std::size_t index = 0) {
  node.network.events().OnNodeConnected(stream, "10.0.0.2:4000");
  const v1::CoordinatorMessage first = node.network.Await(index);
  REQUIRE(first.has_challenge());
  CHECK(first.challenge().protocol_version() == kPeerProtocolVersion);
  CHECK(first.challenge().node_name() == "node-a");
  return first.challenge().nonce();
}

TEST_CASE("Engine: to a node that knows the key the coordinator proves the same first of all") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret);
  const std::string nonce = Connect(node, StreamId(1));
  node.network.events().OnNodeMessage(StreamId(1), HelloUnder("cluster", kSecret, nonce));
  const v1::CoordinatorMessage second = node.network.Await(1);
  REQUIRE(second.has_proof());
  CHECK(second.proof().proof() ==
        CoordinatorProof(KeyForControl(JobKey("cluster", "train", kSecret)),
                         {nonce, kNodeNonce, "train", "node-b"}));
}

TEST_CASE("Engine: a node with a wrong key is turned away with the reason, without a proof") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret);
  const std::string nonce = Connect(node, StreamId(1));
  v1::NodeMessage hello;
  std::string words;
  SECTION("no cluster key, though it claims the user's number") {
    hello = HelloUnder("", kSecret, nonce);
    words = "the ringd on node-b has no cluster key";
  }
  SECTION("another cluster key") {
    hello = HelloUnder("another", kSecret, nonce);
    words = "the ringd on node-b has another cluster key";
  }
  SECTION("another secret") {
    hello = HelloUnder("cluster", "another", nonce);
    words = "RINGD_JOB_SECRET";
  }
  SECTION("a recorded proof") {
    hello = HelloUnder("cluster", kSecret, Connect(node, StreamId(2), 1));
    words = "node-b";
  }
  const std::size_t before = node.network.sent_to_nodes();
  node.network.events().OnNodeMessage(StreamId(1), hello);
  const v1::CoordinatorMessage answer = node.network.Await(before);
  REQUIRE(answer.has_failure());
  CHECK_THAT(answer.failure().text(), Contains(words));
  CHECK(node.network.sent_to_nodes() == before + 1);
}

TEST_CASE("Engine: names both protocol versions to a node that speaks another one") {
  Node node("");
  const std::string nonce = Connect(node, StreamId(1));
  v1::NodeMessage hello = HelloUnder("", kSecret, nonce);
  hello.mutable_hello()->set_protocol_version(kPeerProtocolVersion - 1);
  node.network.events().OnNodeMessage(StreamId(1), hello);
  CHECK_THAT(node.network.Await(1).failure().text(),
             Contains("protocol " + std::to_string(kPeerProtocolVersion - 1)) &&
                 Contains("speaks " + std::to_string(kPeerProtocolVersion)));
}

TEST_CASE("Engine: a job of one node that still gathers its ranks admits no other node") {
  Node node("cluster");
  const auto joined = node.Join(2, kSecret);
  const std::string nonce = Connect(node, StreamId(1));
  node.network.events().OnNodeMessage(StreamId(1), HelloUnder("cluster", kSecret, nonce));
  CHECK_THAT(node.network.Await(1).failure().text(), Contains("has one node"));
}

TEST_CASE("Engine: gives no proof for a job that is coordinated elsewhere") {
  Node node("cluster");
  const auto joined = node.Join(1, kSecret, "10.0.0.7:7117");
  const std::string nonce = Connect(node, StreamId(1));
  node.network.events().OnNodeMessage(StreamId(1), HelloUnder("cluster", kSecret, nonce));
  // Its answer to the next one comes behind any answer to the first.
  Connect(node, StreamId(2), 1);
  CHECK(node.network.sent_to_nodes() == 2);
}

absl::Status Outcome(std::future<absl::Status> joined) {
  REQUIRE(joined.wait_for(kPatience) == std::future_status::ready);
  return joined.get();
}

TEST_CASE(
    "Engine: refuses a job over several nodes that strangers could join, with both ways out") {
  Node node("");
  const absl::Status refused = Outcome(node.Join(1, GENERATE("", "fifteen letters")));
  CHECK(refused.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(refused.message()), Contains("cluster_key_file") &&
                                                 Contains("RINGD_JOB_SECRET") &&
                                                 Contains("insecure_peers") && Contains("train"));
}

TEST_CASE("Engine: a cluster key, a secret of 16 characters or insecure_peers is enough") {
  Node with_key("cluster"), with_nothing(""), insecure("", /*insecure_peers=*/true);
  const auto first = with_key.Join(1, "");
  const auto second = with_nothing.Join(1, "sixteen letters.");
  const auto third = insecure.Join(1, "");
  // A node gets the coordinator's proof where a rank of the job has been let in.
  const auto admits = [](Node& node, const std::string& cluster_key, const std::string& secret) {
    const std::string nonce = Connect(node, StreamId(1));
    node.network.events().OnNodeMessage(StreamId(1), HelloUnder(cluster_key, secret, nonce));
    return node.network.Await(1).has_proof();
  };
  CHECK(admits(with_key, "cluster", ""));
  CHECK(admits(with_nothing, "", "sixteen letters."));
  CHECK(admits(insecure, "", ""));
}

TEST_CASE("Engine: a job of one node needs neither cluster key nor secret") {
  Node node("");
  const auto joined = node.Join(2, "");
  const std::string nonce = Connect(node, StreamId(1));
  node.network.events().OnNodeMessage(StreamId(1), HelloUnder("", "", nonce));
  // The job is there: it waits for its other rank.
  CHECK_THAT(node.network.Await(1).failure().text(), Contains("has one node"));
  CHECK(joined.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

}  // namespace
}  // namespace ringd
