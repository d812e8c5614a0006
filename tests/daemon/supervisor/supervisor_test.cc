#include "daemon/supervisor/supervisor.h"

#include "tests/daemon/engine/called_engine.h"
#include "tests/daemon/supervisor/attached_trainer.h"

namespace ringd {
namespace {

const Caller kSomeone{1000};

struct Fixture {
  Node node;
  std::unique_ptr<Lobby> lobby = *Lobby::Create();
  Supervisor supervisor{lobby.get(), nullptr, node.engine.get()};

  std::uint32_t Sessions() {
    return Await<v1::StatusReply>([&](Answer<v1::StatusReply> answer) {
             supervisor.GetStatus(kSomeone, std::move(answer));
           })
        .reply.sessions();
  }
  absl::Status Join(const std::string& token) {
    return Await<v1::JoinReply>([&](Answer<v1::JoinReply> answer) {
             static_cast<void>(supervisor.Join(kSomeone, token, node.JoinRequestOf(0, 1), answer));
           })
        .status;
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
