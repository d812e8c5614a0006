#include "daemon/peers/expected_jobs.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ringd {
namespace {

constexpr uid_t kAlice = 1000;
constexpr uid_t kBob = 1001;

ExpectedJob JobOf(uid_t uid, const std::string& secret, bool one_node_only = false) {
  return {"train", uid, KeyForControl(JobKey("cluster", "train", secret, uid)), !secret.empty(),
          one_node_only};
}

DoorHello HelloOf(uid_t uid, const std::string& job_id = "train") {
  DoorHello hello;
  hello.purpose = DoorPurpose::kControl;
  hello.subject = ToSubject(ControlSubject{JobTag(job_id), uid});
  hello.node_name = ToDoorName("node-b");
  return hello;
}

struct World {
  World()
      : jobs({[this](ExpectationId job, uid_t user, DoorArrival) {
                admitted.emplace_back(job, user);
              },
              [this](ExpectationId job, const RefusedNode& node) {
                refused.emplace_back(job, node);
              }}) {}

  DoorConsideration Consider(const DoorHello& hello) {
    DoorConsideration answer;
    jobs.Consider(hello, answer);
    return answer;
  }
  // As the door does for a node that has the key.
  void Come(uid_t uid, const DoorKey& key) {
    DoorArrival arrival;
    arrival.hello = HelloOf(uid);
    arrival.key = key;
    jobs.Admit(std::move(arrival));
  }

  std::vector<std::pair<ExpectationId, uid_t>> admitted;
  std::vector<std::pair<ExpectationId, RefusedNode>> refused;
  ExpectedJobs jobs;
};

TEST_CASE("ExpectedJobs: who has the key of a job that waits comes in, and to that job") {
  World world;
  world.jobs.Add(JobOf(kBob, ""));
  const ExpectationId alices = world.jobs.Add(JobOf(kAlice, ""));
  const DoorConsideration answer = world.Consider(HelloOf(kAlice));
  CHECK(answer.verdict == DoorVerdict::kWelcome);
  CHECK(answer.otherwise == DoorVerdict::kWrongKey);
  world.Come(kAlice, JobOf(kAlice, "").key);
  CHECK(world.admitted == std::vector{std::pair{alices, kAlice}});
}

TEST_CASE("ExpectedJobs: a job that is not there yet may still come, also if another user's is") {
  World world;
  CHECK(world.Consider(HelloOf(kAlice)).verdict == DoorVerdict::kUnknownSubject);
  world.jobs.Add(JobOf(kBob, "bob's secret"));
  CHECK(world.Consider(HelloOf(kAlice)).otherwise == DoorVerdict::kUnknownSubject);
  CHECK(world.Consider(HelloOf(kAlice, "another")).verdict == DoorVerdict::kUnknownSubject);
  world.jobs.SetDraining(true);
  CHECK(world.Consider(HelloOf(kAlice)).otherwise == DoorVerdict::kDraining);
  CHECK(world.Consider(HelloOf(kAlice, "another")).verdict == DoorVerdict::kDraining);
  CHECK(world.Consider(HelloOf(kBob)).otherwise == DoorVerdict::kWrongKey);
  world.jobs.SetDraining(false);
  CHECK(world.Consider(HelloOf(kAlice, "another")).verdict == DoorVerdict::kUnknownSubject);
}

TEST_CASE("ExpectedJobs: who waits a thousand times for one job is asked for few of its keys") {
  World world;
  std::vector<ExpectationId> bobs;
  for (int i = 0; i < 1000; ++i) bobs.push_back(world.jobs.Add(JobOf(kBob, std::to_string(i))));
  world.jobs.Add(JobOf(kAlice, "alice's secret"));
  const auto keys = [&](uid_t uid) { return world.Consider(HelloOf(uid)).keys; };
  const DoorKey alices = JobOf(kAlice, "alice's secret").key;
  CHECK(keys(kAlice).size() == ExpectedJobs::kMostKeysOfUser + 1);
  CHECK(keys(kAlice).front() == alices);
  CHECK(keys(kBob).back() == alices);
  for (const ExpectationId id : bobs) world.jobs.Remove(id);
  CHECK(keys(kBob) == std::vector{alices});
}

TEST_CASE("ExpectedJobs: with a secret, a user's number may differ from node to node") {
  World world;
  const ExpectationId job = world.jobs.Add(JobOf(kAlice, "secret"));
  CHECK(world.Consider(HelloOf(kBob)).verdict == DoorVerdict::kWelcome);
  world.Come(kBob, JobOf(kBob, "secret").key);
  CHECK(world.admitted == std::vector{std::pair{job, kAlice}});
}

TEST_CASE("ExpectedJobs: a job of one node lets nobody in, and says so to its user alone") {
  World world;
  const ExpectedJob job = JobOf(kAlice, "", /*one_node_only=*/true);
  world.jobs.Add(job);
  CHECK(world.Consider(HelloOf(kAlice)).verdict == DoorVerdict::kNoOtherNodes);
  CHECK(world.Consider(HelloOf(kBob)).verdict == DoorVerdict::kUnknownSubject);
  world.Come(kAlice, job.key);
  CHECK(world.admitted.empty());
}

TEST_CASE("ExpectedJobs: tells the job that was meant of who was refused") {
  World world;
  const ExpectationId job = world.jobs.Add(JobOf(kAlice, ""));
  world.jobs.OnRefused(HelloOf(kAlice), DoorVerdict::kWrongKey, "node-b at 10.0.0.2 port 4000");
  // Without secrets, somebody with another number may mean this job.
  world.jobs.OnRefused(HelloOf(kBob), DoorVerdict::kUnknownSubject, "node-c");
  world.jobs.OnRefused(HelloOf(kAlice, "another"), DoorVerdict::kUnknownSubject, "node-d");
  world.jobs.OnRefused(HelloOf(kAlice), DoorVerdict::kFull, "node-e");
  REQUIRE(world.refused.size() == 2);
  CHECK(world.refused[0].first == job);
  CHECK(world.refused[0].second.from == "node-b at 10.0.0.2 port 4000");
  CHECK(world.refused[1].second.uid == kBob);
}

TEST_CASE("ExpectedJobs: a job is told of so many refusals, and no more") {
  World world;
  world.jobs.Add(JobOf(kAlice, ""));
  for (std::uint32_t i = 0; i < 10 * ExpectedJobs::kMostRefusals; ++i) {
    world.jobs.OnRefused(HelloOf(kAlice), DoorVerdict::kWrongKey, "somebody");
  }
  CHECK(world.refused.size() == ExpectedJobs::kMostRefusals);
}

TEST_CASE("ExpectedJobs: another user's job with a secret hears nothing of who means his own") {
  World world;
  world.jobs.Add(JobOf(kBob, "secret"));
  world.jobs.OnRefused(HelloOf(kAlice), DoorVerdict::kUnknownSubject, "node-b");
  CHECK(world.refused.empty());
}

TEST_CASE("ExpectedJobs: a job hears nothing of its own node that had asked before the job came") {
  World world;
  world.jobs.Add(JobOf(kBob, "another secret"));
  const DoorVerdict verdict = world.Consider(HelloOf(kAlice)).otherwise;
  world.jobs.Add(JobOf(kAlice, "secret"));
  world.jobs.OnRefused(HelloOf(kAlice), verdict, "node-b");
  CHECK(world.refused.empty());
}

TEST_CASE("ExpectedJobs: one user's jobs have so many connections, and another's are not touched") {
  World world;
  const ExpectedJob alices = JobOf(kAlice, "");
  world.jobs.Add(alices);
  world.jobs.Add(JobOf(kBob, ""));
  for (std::size_t i = 0; i < ExpectedJobs::kMostConnections; ++i) {
    REQUIRE(world.Consider(HelloOf(kAlice)).keys.front() == alices.key);
    world.Come(kAlice, alices.key);
  }
  DoorConsideration answer = world.Consider(HelloOf(kAlice));
  CHECK(answer.keys == std::vector{JobOf(kBob, "").key});
  CHECK(answer.otherwise == DoorVerdict::kFull);
  CHECK(world.Consider(HelloOf(kBob)).verdict == DoorVerdict::kWelcome);
  world.jobs.Release(kAlice);
  CHECK(world.Consider(HelloOf(kAlice)).keys.front() == alices.key);
}

TEST_CASE("ExpectedJobs: nobody comes in to a job that has stopped waiting meanwhile") {
  World world;
  const ExpectedJob job = JobOf(kAlice, "");
  world.jobs.Remove(world.jobs.Add(job));
  CHECK(world.Consider(HelloOf(kAlice)).verdict == DoorVerdict::kUnknownSubject);
  world.Come(kAlice, job.key);
  CHECK(world.admitted.empty());
}

}  // namespace
}  // namespace ringd
