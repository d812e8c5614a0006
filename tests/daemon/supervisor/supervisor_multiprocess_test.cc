#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "daemon/supervisor/supervisor.h"
#include "tests/daemon/supervisor/supervised_node.h"

namespace ringd {
namespace {

TEST_CASE("Supervisor: a trainer that has not joined is the lobby's, and an engine's afterwards") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  CHECK(node.Status().sessions() == 1);
  CHECK(node.Status().jobs() == 0);
  CHECK(node.Serve(0));

  CHECK(node.Join(trainer.token, "job").message() == "");
  CHECK(node.lobby->size() == 0);
  CHECK(node.Status().sessions() == 1);
  CHECK(node.Status().jobs() == 1);
  CHECK(AnswerOf(node.BeginRegister(trainer.token)).status.message() == "");
  CHECK(absl::IsFailedPrecondition(node.Join(trainer.token, "job")));

  trainer.lifeline.Reset();
  CHECK(trainer.Ended());
  CHECK(node.Serve(0));
  CHECK(node.Status().sessions() == 0);
}

TEST_CASE("Supervisor: calls that need a job say so before there is one") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  const std::string& token = trainer.token;
  CHECK(absl::IsFailedPrecondition(AnswerOf(node.BeginRegister(token)).status));
  CHECK(absl::IsFailedPrecondition(
      AnswerOf(Ask<v1::CreateCommunicatorReply>([&](Answer<v1::CreateCommunicatorReply> answer) {
        node.supervisor->CreateCommunicator(kMe, token, {}, std::move(answer));
      })).status));
  CHECK(AnswerOf(Ask<v1::LeaveReply>([&](Answer<v1::LeaveReply> answer) {
          node.supervisor->Leave(kMe, token, {}, std::move(answer));
        })).status.ok());
  CHECK(node.lobby->Has(token));
}

TEST_CASE("Supervisor: a token that nobody has is refused") {
  SupervisedNode node;
  CHECK(absl::IsUnauthenticated(node.Join("nobody", "job")));
  CHECK(absl::IsUnauthenticated(AnswerOf(node.BeginRegister("nobody")).status));
}

TEST_CASE("Supervisor: a join that is refused leaves its session in the lobby") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  v1::JoinRequest request = SupervisedNode::RequestOf("job", 0, 1);
  request.set_weight(1000);
  CHECK(absl::IsInvalidArgument(AnswerOf(node.BeginJoin(trainer.token, request)).status));
  CHECK(node.lobby->Has(trainer.token));
  CHECK(node.Join(trainer.token, "job").message() == "");
}

TEST_CASE("Supervisor: two joins of one session at once, and one of them is refused") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  std::vector<std::future<absl::Status>> joins;
  for (int i = 0; i < 2; ++i) {
    joins.push_back(
        std::async(std::launch::async, [&] { return node.Join(trainer.token, "job"); }));
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

TEST_CASE("Supervisor: a join that is given up is cancelled, and its place is free") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  std::function<void()> give_up;
  auto join = node.BeginJoin(trainer.token, SupervisedNode::RequestOf("job", 0, 2), &give_up);
  give_up();
  const absl::Status told = AnswerOf(std::move(join)).status;
  CHECK(absl::IsCancelled(told));
  CHECK(trainer.Ended());
}

TEST_CASE("Supervisor: who may not see a job learns only that there is one") {
  SupervisedNode node;
  AttachedTrainer trainer = node.Attach();
  REQUIRE(node.Join(trainer.token, "job").message() == "");
  const v1::JobsReply others = node.Jobs(true, Caller{54'321});
  CHECK(others.jobs_size() == 0);
  CHECK(others.hidden_jobs() == 1);
  CHECK(node.Jobs(true, Caller{54'321, true}).jobs_size() == 1);
  trainer.lifeline.Reset();
  CHECK(node.Serve(0));
  CHECK(node.Jobs(true, Caller{54'321}).hidden_jobs() == 1);
  CHECK(node.Jobs(true).jobs_size() == 1);
  CHECK(node.Jobs().jobs_size() == 0);
}

// Says again and again what answers the first call, which is a join, and the next ones.
std::string TellingScript(const std::string& folder, const std::string& list) {
  std::string frames;
  for (std::uint64_t call = 1; call <= 4; ++call) {
    v1::FromEngine word;
    word.mutable_answer()->set_number(call);
    if (call > 1) word.mutable_answer()->set_reply(list);
    const std::string payload = word.SerializeAsString();
    const std::uint32_t header[2] = {static_cast<std::uint32_t>(payload.size()), 0};
    frames.append(reinterpret_cast<const char*>(header), sizeof header).append(payload);
  }
  std::ofstream(folder + "/frames", std::ios::binary) << frames;
  std::ofstream(folder + "/engine")
      << "#!/bin/sh\nwhile cat " << folder << "/frames >&3; do sleep 0.05; done\n";
  std::filesystem::permissions(folder + "/engine", std::filesystem::perms::owner_all);
  return folder + "/engine";
}

TEST_CASE("Supervisor: what an engine lists is its own job, whatever it says of others") {
  v1::JobsReply lies;
  lies.add_jobs()->set_job_id("somebody's");
  lies.mutable_jobs(0)->set_uid(4711);
  lies.set_hidden_jobs(1000);
  lies.add_unanswered("the node is on fire");
  lies.set_schema_version(99);
  char folder[] = "/tmp/ringd-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  for (const std::string& list : {lies.SerializeAsString(), std::string("\x12\x7f")}) {
    SupervisedNode node(SupervisedNode::Settings(), TellingScript(folder, list));
    AttachedTrainer trainer = node.Attach();
    REQUIRE(node.Join(trainer.token, "mine").message() == "");
    const v1::JobsReply jobs = node.Jobs();
    CHECK(jobs.hidden_jobs() == 0);
    CHECK(jobs.schema_version() < 99);
    if (list == lies.SerializeAsString()) {
      REQUIRE(jobs.jobs_size() == 1);
      CHECK(jobs.jobs(0).job_id() == "mine");
      CHECK(jobs.jobs(0).uid() == ::getuid());
      CHECK(jobs.unanswered().empty());
    } else {
      CHECK(jobs.jobs().empty());
      REQUIRE(jobs.unanswered_size() == 1);
      CHECK(jobs.unanswered(0) == "job 'mine': has answered what is no list");
    }
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("Supervisor: drains and reloads reach those who join") {
  SupervisedNode node;
  AttachedTrainer waiting = node.Attach();
  AttachedTrainer late = node.Attach();
  auto join = node.BeginJoin(waiting.token, SupervisedNode::RequestOf("job", 0, 2));
  REQUIRE(node.drain.Set(true).ok());
  const auto joined = AnswerOf(std::move(join));
  CHECK(joined.status.message() == "ringd on node-a is draining: job 'job' can't start any more");
  CHECK(node.Join(late.token, "job").message() ==
        "ringd on node-a is draining: it takes no new jobs");
  CHECK(node.Status().state() == "draining");
  REQUIRE(node.drain.Set(false).ok());
  CHECK(node.Status().state() == "serving");
  // Also by the engine that has been told of the drain.
  CHECK(node.Join(late.token, "job").message() == "");
}

TEST_CASE("Supervisor: root and ringd's own user drain a node, and nobody else") {
  SupervisedNode node;
  const auto drain = [&](const Caller& caller, bool undo) {
    v1::DrainRequest request;
    request.set_undo(undo);
    return AnswerOf(Ask<v1::DrainReply>([&](Answer<v1::DrainReply> answer) {
      node.supervisor->Drain(caller, request, std::move(answer));
    }));
  };
  const auto refused = drain({.uid = ::geteuid() + 1, .is_operator = true}, false);
  CHECK(absl::IsPermissionDenied(refused.status));
  CHECK(node.Status().state() == "serving");
  AttachedTrainer runs = node.Attach();
  REQUIRE(node.Join(runs.token, "runs").message() == "");
  for (int again = 0; again < 2; ++again) {
    const auto drained = drain({.uid = 0}, false);
    REQUIRE(drained.status.ok());
    CHECK(drained.reply.node_name() == "node-a");
    CHECK(drained.reply.state() == "draining");
    CHECK(drained.reply.sessions() == 1);
    CHECK(drained.reply.jobs() == 1);
  }
  CHECK_FALSE(node.Status().ending());
  CHECK(drain(kMe, true).reply.state() == "serving");
  // A ringd that ends can't be talked out of it.
  node.drain.BeginToEnd();
  CHECK(node.Status().ending());
  CHECK(drain(kMe, false).reply.state() == "draining");
  CHECK(absl::IsFailedPrecondition(drain(kMe, true).status));
  CHECK(node.Status().state() == "draining");
}

}  // namespace
}  // namespace ringd
