#include "daemon/jobs/membership/hello_match.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "daemon/peers/job_proof.h"

namespace ringd {
namespace {

using Outcome = HelloMatch::Outcome;

constexpr uid_t kAlice = 1000;
constexpr uid_t kBob = 1001;
constexpr char kNonce[] = "nonce";
constexpr char kNodeNonce[] = "the node's";
constexpr JobProofSubject kSubject = {kNonce, kNodeNonce, "job", "node-b"};

DoorKey KeyOf(const std::string& secret, const std::string& cluster_key = "") {
  return KeyForControl(JobKey(cluster_key, "job", secret));
}

v1::Hello HelloOf(uid_t uid, const std::string& secret, const std::string& cluster_key = "") {
  v1::Hello hello;
  hello.set_job_id("job");
  hello.set_node_name("node-b");
  hello.set_uid(uid);
  hello.set_nonce(kNodeNonce);
  hello.set_proof(NodeProof(KeyOf(secret, cluster_key), kSubject));
  return hello;
}

struct SomeJob {
  uid_t uid;
  std::string secret;
  std::string cluster_key = "";
  bool one_node_only = false;
};

HelloMatch Match(const std::vector<SomeJob>& jobs, const v1::Hello& hello) {
  std::vector<GatheringJob> gathering;
  for (const SomeJob& job : jobs) {
    gathering.push_back(
        {job.uid, KeyOf(job.secret, job.cluster_key), !job.secret.empty(), job.one_node_only});
  }
  return MatchHello(gathering, hello, kNonce);
}

TEST_CASE("MatchHello: who knows the secret of its user's job belongs to it") {
  const std::vector<SomeJob> jobs = {{kAlice, "a"}, {kBob, "b"}};
  const HelloMatch alice = Match(jobs, HelloOf(kAlice, "a"));
  CHECK(alice.outcome == Outcome::kMember);
  CHECK(alice.job == 0);
  const HelloMatch bob = Match(jobs, HelloOf(kBob, "b"));
  CHECK(bob.outcome == Outcome::kMember);
  CHECK(bob.job == 1);
}

TEST_CASE("MatchHello: another secret than the own user's job has is wrong, whatever others have") {
  const std::vector<SomeJob> jobs = {{kBob, "b"}, {kAlice, "a"}};
  const HelloMatch match = Match(jobs, HelloOf(kAlice, "typo"));
  CHECK(match.outcome == Outcome::kWrongKey);
  CHECK(match.job == 1);
  CHECK(Match(jobs, HelloOf(kAlice, "")).outcome == Outcome::kWrongKey);
  CHECK(Match({{kAlice, ""}}, HelloOf(kAlice, "a")).outcome == Outcome::kWrongKey);
}

TEST_CASE("MatchHello: while only another user's ranks have come, a node waits for its own") {
  CHECK(Match({}, HelloOf(kAlice, "a")).outcome == Outcome::kNotYet);
  CHECK(Match({{kBob, "b"}}, HelloOf(kAlice, "a")).outcome == Outcome::kNotYet);
}

TEST_CASE("MatchHello: without a secret the user is what tells jobs apart") {
  const std::vector<SomeJob> jobs = {{kBob, ""}, {kAlice, ""}};
  const HelloMatch alice = Match(jobs, HelloOf(kAlice, ""));
  CHECK(alice.outcome == Outcome::kMember);
  CHECK(alice.job == 1);
  const HelloMatch alone = Match({{kBob, "b"}, {kBob, ""}}, HelloOf(kAlice, ""));
  CHECK(alone.outcome == Outcome::kAnotherUser);
  CHECK(alone.job == 1);
  CHECK(Match({{kBob, ""}, {kAlice, "a"}}, HelloOf(kAlice, "")).outcome == Outcome::kWrongKey);
}

TEST_CASE("MatchHello: users with one secret keep their jobs apart") {
  const std::vector<SomeJob> jobs = {{kBob, "same"}, {kAlice, "same"}};
  CHECK(Match(jobs, HelloOf(kAlice, "same")).job == 1);
  CHECK(Match(jobs, HelloOf(kBob, "same")).job == 0);
}

TEST_CASE("MatchHello: a user may have another number on another node if the secret is known") {
  const HelloMatch match = Match({{kBob, "b"}, {kAlice, "a"}}, HelloOf(4242, "a"));
  CHECK(match.outcome == Outcome::kMember);
  CHECK(match.job == 1);
}

TEST_CASE("MatchHello: a proof for another nonce, job or node proves nothing") {
  const std::vector<SomeJob> jobs = {{kAlice, "a"}};
  v1::Hello hello = HelloOf(kAlice, "a");
  SECTION("nonce, as in a recorded Hello") {
    hello.set_proof(NodeProof(KeyOf("a"), {"another", kNodeNonce, "job", "node-b"}));
  }
  SECTION("the node's nonce") { hello.set_nonce("another"); }
  SECTION("job") { hello.set_job_id("job2"); }
  SECTION("node") { hello.set_node_name("node-c"); }
  SECTION("none at all") { hello.clear_proof(); }
  CHECK(Match(jobs, hello).outcome == Outcome::kWrongKey);
}

TEST_CASE("MatchHello: a coordinator's proof that comes back proves nothing") {
  v1::Hello hello = HelloOf(kAlice, "a");
  hello.set_proof(CoordinatorProof(KeyOf("a"), kSubject));
  CHECK(Match({{kAlice, "a"}}, hello).outcome == Outcome::kWrongKey);
}

TEST_CASE("MatchHello: to claim the user's number is of no use without the cluster key") {
  const std::vector<SomeJob> jobs = {{kAlice, "", "cluster"}};
  CHECK(Match(jobs, HelloOf(kAlice, "")).outcome == Outcome::kWrongKey);
  CHECK(Match(jobs, HelloOf(kAlice, "", "of another cluster")).outcome == Outcome::kWrongKey);
  CHECK(Match(jobs, HelloOf(kAlice, "", "cluster")).outcome == Outcome::kMember);
  // The secret alone does not do either where there is a cluster key.
  CHECK(Match({{kAlice, "a", "cluster"}}, HelloOf(kAlice, "a")).outcome == Outcome::kWrongKey);
}

TEST_CASE("MatchHello: the cluster key alone does not bring jobs of two users together") {
  CHECK(Match({{kBob, "", "cluster"}}, HelloOf(kAlice, "", "cluster")).outcome ==
        Outcome::kAnotherUser);
}

TEST_CASE("MatchHello: a job of one node admits nobody, whoever knows its key") {
  const std::vector<SomeJob> jobs = {{kAlice, "a", "", true}};
  CHECK(Match(jobs, HelloOf(kAlice, "a")).outcome == Outcome::kOneNodeOnly);
  // Another user's node goes on to wait for its own job.
  CHECK(Match(jobs, HelloOf(kBob, "a")).outcome == Outcome::kNotYet);
}

}  // namespace
}  // namespace ringd
