#include <signal.h>

#include <fstream>

#include "daemon/supervisor/engines.h"
#include "tests/count_descriptors.h"
#include "tests/daemon/supervisor/supervised_node.h"

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

  first.lifeline.Reset();
  CHECK(first.Ended());
  CHECK(node.Serve(2));
  CHECK(::kill(pid, 0) != 0);  // reaped
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
