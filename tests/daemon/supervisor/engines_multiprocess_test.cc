#include <signal.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <vector>

#include "daemon/jobs/plans/plan_file.h"
#include "daemon/supervisor/engines.h"
#include "daemon/supervisor/join_check.h"
#include "tests/count_descriptors.h"
#include "tests/daemon/supervisor/supervised_node.h"
#include "tests/proto/base/tcp_pair.h"

namespace ringd {
namespace {

bool Contains(absl::string_view text, absl::string_view part) {
  return text.find(part) != absl::string_view::npos;
}

TEST_CASE("Engines: each job has a process of its own, which ends with it") {
  SupervisedNode node;
  AttachedTrainer first = node.Attach();
  AttachedTrainer second = node.Attach();
  AttachedTrainer third = node.Attach();  // one more than stand ready
  REQUIRE(node.Join(first.token, "one").message() == "");
  REQUIRE(node.Join(second.token, "two").message() == "");
  REQUIRE(node.Join(third.token, "three").message() == "");
  const pid_t pid = node.EngineOf("one");
  CHECK(pid > 0);
  CHECK(node.EngineOf("two") > 0);
  CHECK(node.EngineOf("three") > 0);
  CHECK(pid != node.EngineOf("two"));
  CHECK(node.engines->IsEngine(pid));
  CHECK_FALSE(node.engines->IsEngine(::getpid()));

  const Clock::time_point before = Clock::now();
  first.lifeline.Reset();
  CHECK(first.Ended());
  CHECK(node.Serve(2));
  CHECK(::kill(pid, 0) != 0);  // reaped
  // What it has connected before may come up late.
  CHECK(node.engines->IsEngine(pid, before));
  CHECK_FALSE(node.engines->IsEngine(pid, Clock::now()));
  CHECK(node.EngineOf("two") > 0);
  CHECK(AnswerOf(node.BeginRegister(second.token)).status.message() == "");
}

TEST_CASE("Engines: a job that follows another of its name is served, and comes after it") {
  SupervisedNode node;
  for (int i = 0; i < 4; ++i) {
    AttachedTrainer trainer = node.Attach();
    INFO("job " << i);
    REQUIRE(node.Join(trainer.token, "again").message() == "");
    trainer.lifeline.Reset();
    // The next one comes while this one ends, or its engine.
    if (i % 2 == 1) CHECK(trainer.Ended());
  }
  CHECK(node.Serve(0));
  CHECK(node.Jobs(true).jobs_size() == 4);
}

TEST_CASE("Engines: a killed one takes its job with it, names itself, and no other job") {
  SupervisedNode node;
  AttachedTrainer killed = node.Attach();
  AttachedTrainer waiting = node.Attach();
  AttachedTrainer other = node.Attach();
  REQUIRE(node.Join(killed.token, "killed").message() == "");
  REQUIRE(node.Join(other.token, "other").message() == "");
  // A call that waits: the second rank of this job never comes.
  auto join = node.BeginJoin(waiting.token, SupervisedNode::RequestOf("waits", 0, 2));
  const pid_t pid = node.EngineOf("killed");
  REQUIRE(::kill(pid, SIGKILL) == 0);
  REQUIRE(::kill(node.EngineOf("waits"), SIGKILL) == 0);

  const std::string cause = "the engine of job 'killed' (pid " + std::to_string(pid) +
                            " on node-a) was killed by signal 9 (Killed)";
  CHECK(Contains(killed.LastWords(), cause));
  CHECK(killed.Ended());
  const auto joined = AnswerOf(std::move(join));
  CHECK(absl::IsAborted(joined.status));
  CHECK(Contains(joined.status.message(), "the engine of job 'waits' (pid "));
  CHECK(node.Serve(1));
  CHECK(absl::IsUnauthenticated(AnswerOf(node.BeginRegister(killed.token)).status));
  CHECK(AnswerOf(node.BeginRegister(other.token)).status.message() == "");
  // For those who look for it later.
  bool remembered = false;
  const v1::JobsReply all = node.Jobs(true);
  for (const v1::Job& job : all.jobs()) {
    if (job.job_id() == "killed") remembered = job.state() == "failed" && job.failure() == cause;
  }
  CHECK(remembered);

  AttachedTrainer next = node.Attach();
  CHECK(node.Join(next.token, "killed").message() == "");
}

TEST_CASE("Engines: one that is stopped is ended after engine_patience, and its ranks hear why") {
  Config config = SupervisedNode::Settings();
  config.engine_patience = std::chrono::seconds(5);
  SupervisedNode node(config);
  AttachedTrainer trainer = node.Attach();
  AttachedTrainer other = node.Attach();
  REQUIRE(node.Join(trainer.token, "stopped").message() == "");
  REQUIRE(node.Join(other.token, "other").message() == "");
  const pid_t pid = node.EngineOf("stopped");
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  // Lists come all the same, and say who is missing.
  const v1::JobsReply jobs = node.Jobs();
  REQUIRE(jobs.jobs_size() == 1);
  CHECK(jobs.jobs(0).job_id() == "other");
  REQUIRE(jobs.unanswered_size() == 1);
  CHECK(jobs.unanswered(0) ==
        "job 'stopped': pid " + std::to_string(pid) + " has not answered for 3 s");
  CHECK(Contains(trainer.LastWords(), "(engine_patience)"));
  CHECK(trainer.Ended());
  CHECK(AnswerOf(node.BeginRegister(other.token)).status.message() == "");
}

TEST_CASE("Engines: what a program says that is no engine ends it, and costs nothing else") {
  char folder[] = "/tmp/ringd-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string script = std::string(folder) + "/engine";
  for (const std::string body :
       {"exit 3", "printf 'rubbish rubbish rubbish' >&3; sleep 60",
        "printf '\\001\\000\\000\\000\\000\\000\\000\\000\\377' >&3; sleep 60",
        "exec 3>&-; sleep 60"}) {
    INFO(body);
    {
      std::ofstream file(script);
      file << "#!/bin/sh\n" << body << "\n";
    }
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    SupervisedNode node(SupervisedNode::Settings(), script);
    AttachedTrainer trainer = node.Attach();
    const absl::Status status = node.Join(trainer.token, "job");
    CHECK(absl::IsAborted(status));
    CHECK(Contains(status.message(), "the engine of job 'job' (pid "));
    CHECK(trainer.Ended());
  }
  std::filesystem::remove_all(folder);
}

// What an engine says, on its way.
std::string FrameOf(const v1::FromEngine& word) {
  const std::string payload = word.SerializeAsString();
  const std::uint32_t header[2] = {static_cast<std::uint32_t>(payload.size()), 0};
  return std::string(reinterpret_cast<const char*>(header), sizeof header) + payload;
}

v1::FromEngine Keeps(const std::string& state, int unmeasured, std::size_t name_bytes) {
  v1::FromEngine word;
  word.mutable_keep()->set_state(state);
  for (int i = 0; i < unmeasured; ++i) {
    word.mutable_keep()->add_unmeasured(std::string(name_bytes, 'n'));
  }
  return word;
}

TEST_CASE(
    "Engines: one that has more to be kept than there is room for ends, and nothing is kept") {
  v1::FromEngine job;
  job.mutable_job_ended()->mutable_job()->set_failure(std::string((1 << 20) + 1, 'f'));
  const std::string nothing = FormatState({});
  const std::vector<std::pair<v1::FromEngine, std::string>> words = {
      {job, "tells more of a job than anybody keeps"},
      {Keeps("{", 0, 0), "wants to keep what is none"},
      {Keeps(std::string(kMostPassedBytes + 1, ' '), 0, 0), "wants to keep what is none"},
      {Keeps(nothing, 33, 1), "names nodes that can't be measured"},
      {Keeps(nothing, 1, 257), "names nodes that can't be measured"}};
  char folder[] = "/tmp/ringd-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string script = std::string(folder) + "/engine";
  for (const auto& [word, cause] : words) {
    INFO(cause);
    {
      std::ofstream(std::string(folder) + "/frame", std::ios::binary) << FrameOf(word);
      std::ofstream(script) << "#!/bin/sh\ncat " << folder << "/frame >&3\nsleep 60\n";
    }
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    SupervisedNode node(SupervisedNode::Settings(), script);
    AttachedTrainer trainer = node.Attach();
    const absl::Status status = node.Join(trainer.token, "job");
    CHECK(Contains(status.message(), "the engine of job 'job' (pid "));
    CHECK(Contains(status.message(), cause));
    CHECK(trainer.Ended());
    CHECK(node.plans.Unmeasured().empty());
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("Engines: how a rank has ended is passed on with a secret that can be one, no longer") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  v1::JoinRequest join = SupervisedNode::RequestOf("job", 0, 1);
  join.set_secret("the job's own secret");
  REQUIRE(AnswerOf(node.BeginJoin(trainer.token, join)).status.message() == "");
  const auto report = [&node](std::size_t secret_bytes, const Caller& caller = kMe) {
    v1::ReportExitRequest request;
    request.set_job_id("job");
    request.set_secret(std::string(secret_bytes, 's'));
    return AnswerOf(Ask<v1::ReportExitReply>([&](Answer<v1::ReportExitReply> answer) {
             node.supervisor->ReportExit(caller, request, std::move(answer));
           }))
        .status;
  };
  // The engine says that this is not the job's.
  CHECK(absl::IsUnauthenticated(report(kMostSecretBytes)));
  CHECK(absl::IsNotFound(report(kMostSecretBytes + 1)));
  // Nor does the engine of another user hear the secret of a job of the same name.
  CHECK(absl::IsNotFound(report(kMostSecretBytes, Caller{54'321})));
  CHECK(absl::IsUnauthenticated(report(kMostSecretBytes, Caller{54'321, true})));
}

TEST_CASE("Engines: descriptors on a lifeline whose close waits keep no other job waiting") {
  SupervisedNode node;
  AttachedTrainer bad = node.Attach();
  AttachedTrainer other = node.Attach();
  REQUIRE(node.Join(other.token, "other").message() == "");
  // As long as it is the lobby's nobody reads it.
  std::vector<std::array<UniqueFd, 2>> lingering;
  for (int i = 0; i < 20; ++i) {
    lingering.push_back(testing::TcpPair());
    UniqueFd& full = lingering.back()[0];
    testing::MakeLinger(full.get());
    const std::array<std::byte, 1> byte{};
    const std::array<int, 1> fds = {full.get()};
    REQUIRE(SendWithFds(bad.lifeline.get(), byte, fds, Clock::now()).ok());
    full.Reset();
  }
  const Clock::time_point began = Clock::now();
  // Whether the engine takes him or not.
  static_cast<void>(node.Join(bad.token, "bad"));
  bad.lifeline.Reset();
  CHECK(bad.Ended());
  CHECK(node.Serve(1));
  for (int i = 0; i < 3; ++i) {
    CHECK(AnswerOf(node.BeginRegister(other.token)).status.message() == "");
  }
  CHECK(Clock::now() - began < std::chrono::seconds(testing::kLingerSeconds) / 2);
}

TEST_CASE("Engines: stopping tells the ranks, and leaves nothing behind") {
  const std::size_t before = CountDescriptors();
  {
    SupervisedNode node;
    AttachedTrainer trainer = node.Attach();
    REQUIRE(node.Join(trainer.token, "job").message() == "");
    const pid_t pid = node.EngineOf("job");
    node.engines->Stop();
    CHECK(Contains(trainer.LastWords(), "ringd on node-a was stopped"));
    CHECK(trainer.Ended());
    CHECK(::kill(pid, 0) != 0);
    AttachedTrainer late = node.Attach();
    CHECK(absl::IsUnavailable(node.Join(late.token, "job")));
    CHECK(node.lobby->Has(late.token));
  }
  CHECK(CountDescriptors() == before);
}

}  // namespace
}  // namespace ringd
