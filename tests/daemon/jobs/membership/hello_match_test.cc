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

v1::Hello HelloOf(uid_t uid, const std::string& secret) {
  v1::Hello hello;
  hello.set_job_id("job");
  hello.set_node_name("node-b");
  hello.set_uid(uid);
  hello.set_proof(ComputeJobProof(secret, kNonce, "job", "node-b"));
  return hello;
}

HelloMatch Match(const std::vector<GatheringJob>& jobs, const v1::Hello& hello) {
  return MatchHello(jobs, hello, kNonce);
}

TEST_CASE("MatchHello: who knows the secret of its user's job belongs to it") {
  const std::vector<GatheringJob> jobs = {{kAlice, "a"}, {kBob, "b"}};
  const HelloMatch alice = Match(jobs, HelloOf(kAlice, "a"));
  CHECK(alice.outcome == Outcome::kMember);
  CHECK(alice.job == 0);
  const HelloMatch bob = Match(jobs, HelloOf(kBob, "b"));
  CHECK(bob.outcome == Outcome::kMember);
  CHECK(bob.job == 1);
}

TEST_CASE("MatchHello: another secret than the own user's job has is wrong, whatever others have") {
  const std::vector<GatheringJob> jobs = {{kBob, "b"}, {kAlice, "a"}};
  const HelloMatch match = Match(jobs, HelloOf(kAlice, "typo"));
  CHECK(match.outcome == Outcome::kWrongSecret);
  CHECK(match.job == 1);
  CHECK(Match(jobs, HelloOf(kAlice, "")).outcome == Outcome::kWrongSecret);
  CHECK(Match({{kAlice, ""}}, HelloOf(kAlice, "a")).outcome == Outcome::kWrongSecret);
}

TEST_CASE("MatchHello: while only another user's ranks have come, a node waits for its own") {
  CHECK(Match({}, HelloOf(kAlice, "a")).outcome == Outcome::kNotYet);
  CHECK(Match({{kBob, "b"}}, HelloOf(kAlice, "a")).outcome == Outcome::kNotYet);
}

TEST_CASE("MatchHello: without a secret the user is what tells jobs apart") {
  const std::vector<GatheringJob> jobs = {{kBob, ""}, {kAlice, ""}};
  const HelloMatch alice = Match(jobs, HelloOf(kAlice, ""));
  CHECK(alice.outcome == Outcome::kMember);
  CHECK(alice.job == 1);
  const HelloMatch alone = Match({{kBob, "b"}, {kBob, ""}}, HelloOf(kAlice, ""));
  CHECK(alone.outcome == Outcome::kAnotherUser);
  CHECK(alone.job == 1);
  CHECK(Match({{kBob, ""}, {kAlice, "a"}}, HelloOf(kAlice, "")).outcome == Outcome::kWrongSecret);
}

TEST_CASE("MatchHello: users with one secret keep their jobs apart") {
  const std::vector<GatheringJob> jobs = {{kBob, "same"}, {kAlice, "same"}};
  CHECK(Match(jobs, HelloOf(kAlice, "same")).job == 1);
  CHECK(Match(jobs, HelloOf(kBob, "same")).job == 0);
}

TEST_CASE("MatchHello: a user may have another number on another node if the secret is known") {
  const HelloMatch match = Match({{kBob, "b"}, {kAlice, "a"}}, HelloOf(4242, "a"));
  CHECK(match.outcome == Outcome::kMember);
  CHECK(match.job == 1);
}

TEST_CASE("MatchHello: a proof for another nonce, job or node proves nothing") {
  const std::vector<GatheringJob> jobs = {{kAlice, "a"}};
  v1::Hello hello = HelloOf(kAlice, "a");
  SECTION("nonce") { hello.set_proof(ComputeJobProof("a", "another", "job", "node-b")); }
  SECTION("job") { hello.set_job_id("job2"); }
  SECTION("node") { hello.set_node_name("node-c"); }
  SECTION("none at all") { hello.clear_proof(); }
  CHECK(Match(jobs, hello).outcome == Outcome::kWrongSecret);
}

}  // namespace
}  // namespace ringd
