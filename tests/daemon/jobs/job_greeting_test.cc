// What a node believes of who answers at its job's rendezvous.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "daemon/jobs/job.h"
#include "daemon/jobs/membership/protocol_version.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

class RecordingLink final : public CoordinatorLink {
 public:
  explicit RecordingLink(std::vector<v1::NodeMessage>& sent) : sent_(sent) {}
  void Send(v1::NodeMessage message) override { sent_.push_back(std::move(message)); }

 private:
  std::vector<v1::NodeMessage>& sent_;
};

constexpr char kSecret[] = "a secret of many characters";
const std::string kNonce(kJobNonceBytes, 'c');

// A node's job of which the coordinator is elsewhere, and who answers there.
struct World {
  World() {
    Job::Options options;
    options.job_id = "train";
    options.size = 2;
    options.local_size = 1;
    options.rendezvous = "10.0.0.9:7117";
    options.node_name = "node-b";
    options.key = JobKey("", "train", kSecret);
    job = std::make_unique<Job>(options, nullptr, Clock::now());
    job->UseLink(std::make_unique<RecordingLink>(sent), /*expects_challenge=*/true);
  }

  void Receive(const v1::CoordinatorMessage& message) {
    job->OnCoordinatorMessage(message, Clock::now());
  }
  void Challenge(const std::string& nonce = kNonce, bool has_cluster_key = false) {
    v1::CoordinatorMessage message;
    message.mutable_challenge()->set_protocol_version(kPeerProtocolVersion);
    message.mutable_challenge()->set_nonce(nonce);
    message.mutable_challenge()->set_node_name("node-a");
    message.mutable_challenge()->set_has_cluster_key(has_cluster_key);
    Receive(message);
  }
  void Prove(const std::string& proof) {
    v1::CoordinatorMessage message;
    message.mutable_proof()->set_proof(proof);
    Receive(message);
  }
  const v1::Hello& hello() const {
    REQUIRE_FALSE(sent.empty());
    REQUIRE(sent[0].has_hello());
    return sent[0].hello();
  }
  std::string ProofUnder(const std::string& secret) const {
    return CoordinatorProof(KeyForControl(JobKey("", "train", secret)),
                            {kNonce, hello().nonce(), "train", "node-b"});
  }
  void CheckFailedNaming(const std::string& words) const {
    REQUIRE(job->state() == Job::State::kFailed);
    CHECK_FALSE(job->TrustsCoordinator());
    CHECK_THAT(std::string(job->failure().message()), Contains("10.0.0.9:7117") && Contains(words));
  }

  std::vector<v1::NodeMessage> sent;
  std::unique_ptr<Job> job;
};

v1::CoordinatorMessage SomePlan() {
  v1::CoordinatorMessage message;
  message.mutable_plan();
  return message;
}

TEST_CASE("Job: proves that it knows the key, with a nonce of its own") {
  World world;
  world.Challenge();
  const v1::Hello& hello = world.hello();
  CHECK(hello.nonce().size() == kJobNonceBytes);
  CHECK(hello.nonce() != kNonce);
  CHECK(hello.proof() == NodeProof(KeyForControl(JobKey("", "train", kSecret)),
                                   {kNonce, hello.nonce(), "train", "node-b"}));
  World other;
  other.Challenge();
  CHECK(other.hello().nonce() != hello.nonce());
}

TEST_CASE("Job: believes the coordinator once that has proved that it knows the key") {
  World world;
  world.Challenge();
  CHECK_FALSE(world.job->TrustsCoordinator());
  world.Prove(world.ProofUnder(kSecret));
  CHECK(world.job->TrustsCoordinator());
  world.Receive(SomePlan());
  CHECK(world.job->state() == Job::State::kJoining);
}

TEST_CASE("Job: fails if the coordinator's proof is wrong, and names the rendezvous") {
  World world;
  world.Challenge();
  SECTION("under another secret") {
    world.Prove(world.ProofUnder("typo"));
    world.CheckFailedNaming("RINGD_JOB_SECRET");
  }
  SECTION("the node's own, reflected") {
    world.Prove(world.hello().proof());
    world.CheckFailedNaming("node-a");
  }
  SECTION("of another stream, replayed") {
    World recorded;
    recorded.Challenge();
    world.Prove(recorded.ProofUnder(kSecret));
    world.CheckFailedNaming("node-a");
  }
  SECTION("empty") {
    world.Prove("");
    world.CheckFailedNaming("node-a");
  }
}

TEST_CASE("Job: says that the coordinator's ringd has a cluster key and this one has none") {
  World world;
  world.Challenge(kNonce, /*has_cluster_key=*/true);
  world.Prove(world.ProofUnder("typo"));
  world.CheckFailedNaming("the ringd on node-a has a cluster key");
}

TEST_CASE("Job: does nothing for a coordinator that has not proved itself") {
  World world;
  if (GENERATE(true, false)) world.Challenge();
  v1::CoordinatorMessage order = SomePlan();
  switch (GENERATE(0, 1, 2, 3)) {
    case 0:
      order.mutable_membership();
      break;
    case 1:
      order.mutable_link_probe();
      break;
    case 2:
      order.mutable_stall_inquiry();
      break;
    default:
      break;
  }
  world.Receive(order);
  world.CheckFailedNaming("without proof");
}

TEST_CASE("Job: a proof before the challenge is none, whatever it is") {
  World world;
  world.Prove(
      CoordinatorProof(KeyForControl(JobKey("", "train", kSecret)), {"", "", "train", "node-b"}));
  world.CheckFailedNaming("does not know the key");
}

TEST_CASE("Job: a challenge that is too short or too long is refused") {
  World world;
  world.Challenge(GENERATE(std::string(), std::string(31, 'c'), std::string(1 << 20, 'c')));
  world.CheckFailedNaming("a challenge of");
  for (const v1::NodeMessage& message : world.sent) CHECK_FALSE(message.has_hello());
}

TEST_CASE("Job: who has proved nothing can refuse, in bounded and printable words") {
  World world;
  world.Challenge();
  v1::CoordinatorMessage refusal;
  refusal.mutable_failure()->set_text("no\x1b[31m" + std::string(1 << 20, 'x'));
  world.Receive(refusal);
  world.CheckFailedNaming("refuses: no?[31m");
  CHECK(world.job->failure().message().size() < 4096);
}

}  // namespace
}  // namespace ringd
