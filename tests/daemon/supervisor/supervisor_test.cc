#include "daemon/supervisor/supervisor.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/engine/called_engine.h"
#include "tests/daemon/supervisor/attached_trainer.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

const Caller kSomeone{1000};
const Caller kOperator{0, true};

SupervisorOptions Options() {
  SupervisorOptions options;
  options.config.node_name = "node-a";
  return options;
}

struct Fixture {
  EngineRecord record{16};
  Node node{[this](EngineOptions& options) { options.listener = &record; }};
  std::unique_ptr<Lobby> lobby = *Lobby::Create();
  Supervisor supervisor{Options(), lobby.get(), nullptr, node.engine.get(), &record};

  v1::StatusReply Status(const Caller& caller = kSomeone) {
    return Await<v1::StatusReply>([&](Answer<v1::StatusReply> answer) {
             supervisor.GetStatus(caller, std::move(answer));
           })
        .reply;
  }
  std::uint32_t Sessions() { return Status().sessions(); }
  absl::Status Join(const std::string& token, const v1::JoinRequest& request) {
    return Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
             static_cast<void>(supervisor.Join(kSomeone, token, request, answer));
           })
        .status;
  }
  absl::Status Join(const std::string& token) { return Join(token, node.JoinRequestOf(0, 1)); }
  // What a caller is told of jobs, also of those that have ended.
  v1::JobsReply AllJobs(const Caller& caller, const std::string& job_id = "") {
    v1::ListJobsRequest request;
    request.set_ended(true);
    request.set_job_id(job_id);
    const auto jobs = Await<v1::JobsReply>([&](Answer<v1::JobsReply> answer) {
      supervisor.ListJobs(caller, request, std::move(answer));
    });
    REQUIRE(jobs.status.message() == "");
    return jobs.reply;
  }
  absl::Status Register(const std::string& token) {
    return Await<v1::RegisterTensorsReply>([&](Answer<v1::RegisterTensorsReply> answer) {
             supervisor.RegisterTensors(kSomeone, token, {}, std::move(answer));
           })
        .status;
  }
};

TEST_CASE("Supervisor: a trainer that has not joined is the lobby's, and the engine's afterwards") {
  Fixture ringd;
  AttachedTrainer trainer(1);
  ringd.lobby->Add(std::move(trainer.session));
  CHECK(ringd.Sessions() == 1);
  CHECK(ringd.node.engine->Idle());

  CHECK(ringd.Join(trainer.token).message() == "");
  CHECK(ringd.lobby->size() == 0);
  CHECK_FALSE(ringd.node.engine->Idle());
  CHECK(ringd.Sessions() == 1);
  CHECK(ringd.Register(trainer.token).message() == "");
  CHECK(absl::IsFailedPrecondition(ringd.Join(trainer.token)));

  trainer.lifeline.Reset();
  CHECK(trainer.Ended());
  CHECK(ringd.node.engine->Idle());
}

TEST_CASE("Supervisor: a join that can be refused without a job leaves its session in the lobby") {
  Fixture ringd;
  AttachedTrainer trainer(1);
  ringd.lobby->Add(std::move(trainer.session));
  v1::JoinRequest request = ringd.node.JoinRequestOf(0, 1);
  request.set_job_id("");
  CHECK(absl::IsInvalidArgument(ringd.Join(trainer.token, request)));
  request = ringd.node.JoinRequestOf(0, 2);
  request.set_local_size(1);
  CHECK(absl::IsFailedPrecondition(ringd.Join(trainer.token, request)));
  ringd.supervisor.Drain();
  const absl::Status draining = ringd.Join(trainer.token);
  CHECK(absl::IsFailedPrecondition(draining));
  CHECK_THAT(std::string(draining.message()), Contains("node-a is draining"));
  CHECK(ringd.lobby->size() == 1);
  CHECK(ringd.node.engine->Idle());
}

TEST_CASE(
    "Supervisor: remembers jobs that have ended, and shows them to their user and operators") {
  Fixture ringd;
  const Trainer mine = ringd.node.Join(1000);
  const Trainer theirs = ringd.node.Join(2000);
  // A job that goes on is no ended one.
  const Trainer stays = ringd.node.Join(1000);
  for (const Trainer* trainer : {&mine, &theirs}) {
    const auto left = Await<v1::LeaveReply>([&](Answer<v1::LeaveReply> answer) {
      ringd.node.engine->Leave({1000}, trainer->token, std::move(answer));
    });
    REQUIRE(left.status.ok());
    ::shutdown(trainer->lifeline.get(), SHUT_RDWR);
  }
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(30);
  const auto ended_count = [](const v1::JobsReply& reply) {
    return std::count_if(reply.jobs().begin(), reply.jobs().end(),
                         [](const v1::Job& job) { return job.ended_unix_seconds() > 0; });
  };
  while (ended_count(ringd.AllJobs(kOperator)) < 2 && Clock::now() < deadline) {
  }
  const v1::JobsReply all = ringd.AllJobs(kOperator);
  REQUIRE(all.jobs_size() == 3);
  CHECK(all.hidden_jobs() == 0);
  CHECK(all.jobs(0).state() == "running");
  CHECK(all.jobs(1).state() == "done");
  CHECK(ringd.Status().jobs() == 1);

  const v1::JobsReply own = ringd.AllJobs({1000, false});
  REQUIRE(own.jobs_size() == 2);
  CHECK(own.hidden_jobs() == 1);
  for (const v1::Job& job : own.jobs()) CHECK(job.uid() == 1000);
  // Asked for by its name there is no more to see.
  CHECK(ringd.AllJobs({1000, false}, theirs.job_id).jobs_size() == 0);
  CHECK(ringd.AllJobs({2000, false}, theirs.job_id).jobs_size() == 1);

  // Without the wish only what goes on.
  const auto live = Await<v1::JobsReply>([&](Answer<v1::JobsReply> answer) {
    ringd.supervisor.ListJobs(kOperator, {}, std::move(answer));
  });
  CHECK(live.reply.jobs_size() == 1);
}

TEST_CASE("Supervisor: the status tells operators who may come, and what has happened") {
  Fixture ringd;
  Config config = Options().config;
  config.allowed_groups = {"gpu"};
  config.operators_group = "admins";
  ringd.supervisor.Reload(config);
  ringd.supervisor.CountRefusedAttach();
  CHECK(ringd.Status(kOperator).allowed_groups(0) == "gpu");
  CHECK(ringd.Status(kOperator).operators_group() == "admins");
  CHECK(ringd.Status(kOperator).attaches_refused() == 1);
  CHECK(ringd.Status().allowed_groups_size() == 0);
  CHECK(ringd.Status().operators_group().empty());
  CHECK(ringd.Status().state() == "serving");
  CHECK(ringd.Status().draining_seconds() == 0);
  ringd.supervisor.Drain();
  CHECK(ringd.Status().state() == "draining");
  CHECK(ringd.Status().draining_seconds() > 0);
}

TEST_CASE("Supervisor: calls that need a job say so before there is one") {
  Fixture ringd;
  AttachedTrainer trainer(1);
  ringd.lobby->Add(std::move(trainer.session));
  const std::string& token = trainer.token;
  CHECK(absl::IsFailedPrecondition(ringd.Register(token)));
  CHECK(absl::IsFailedPrecondition(
      Await<v1::UnregisterTensorsReply>([&](Answer<v1::UnregisterTensorsReply> answer) {
        ringd.supervisor.UnregisterTensors(kSomeone, token, {}, std::move(answer));
      }).status));
  CHECK(absl::IsFailedPrecondition(
      Await<v1::DescribeMismatchReply>([&](Answer<v1::DescribeMismatchReply> answer) {
        ringd.supervisor.DescribeMismatch(kSomeone, token, {}, std::move(answer));
      }).status));
  CHECK(absl::IsFailedPrecondition(
      Await<v1::CreateCommunicatorReply>([&](Answer<v1::CreateCommunicatorReply> answer) {
        ringd.supervisor.CreateCommunicator(kSomeone, token, {}, std::move(answer));
      }).status));
  CHECK(absl::IsFailedPrecondition(
      Await<v1::DestroyCommunicatorReply>([&](Answer<v1::DestroyCommunicatorReply> answer) {
        ringd.supervisor.DestroyCommunicator(kSomeone, token, {}, std::move(answer));
      }).status));
  CHECK(Await<v1::LeaveReply>([&](Answer<v1::LeaveReply> answer) {
          ringd.supervisor.Leave(kSomeone, token, std::move(answer));
        }).status.ok());
  CHECK(ringd.lobby->Has(token));
}

TEST_CASE("Supervisor: a token that nobody has is the engine's to refuse") {
  Fixture ringd;
  CHECK(absl::IsUnauthenticated(ringd.Join("nobody")));
  CHECK(absl::IsUnauthenticated(ringd.Register("nobody")));
}

TEST_CASE("Supervisor: two joins of one session at once, and one of them is refused") {
  Fixture ringd;
  AttachedTrainer trainer(1);
  ringd.lobby->Add(std::move(trainer.session));
  std::vector<std::future<absl::Status>> joins;
  for (int i = 0; i < 2; ++i) {
    joins.push_back(std::async(std::launch::async, [&] { return ringd.Join(trainer.token); }));
  }
  int joined = 0;
  for (auto& join : joins) {
    const absl::Status status = join.get();
    if (status.ok()) ++joined;
    // The other one may have come between the lobby and the engine.
    CHECK((status.ok() || absl::IsFailedPrecondition(status) || absl::IsUnauthenticated(status)));
  }
  CHECK(joined == 1);
}

}  // namespace
}  // namespace ringd
