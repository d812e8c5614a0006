#include "daemon/supervisor/lobby.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/daemon/supervisor/attached_trainer.h"
#include "tests/processor_seconds.h"

namespace ringd {
namespace {

using Catch::Contains;

TEST_CASE("Lobby: a session is taken once, by its token, and lives") {
  IsolatedExecutor isolated;
  auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer one(1);
  AttachedTrainer other(2);
  lobby->Add(std::move(one.session));
  lobby->Add(std::move(other.session));
  CHECK(lobby->size() == 2);
  CHECK(lobby->Has(one.token));
  CHECK_FALSE(lobby->Has("none"));
  CHECK(lobby->Take("none") == nullptr);

  const auto taken = lobby->Take(one.token);
  REQUIRE(taken != nullptr);
  CHECK(taken->id == SessionId(1));
  CHECK_FALSE(lobby->Has(one.token));
  CHECK(lobby->Take(one.token) == nullptr);
  lobby->Settle();
  CHECK(lobby->size() == 1);
  // What happens to it is not the lobby's business any more.
  one.lifeline.Reset();
  lobby.reset();
  CHECK_FALSE(one.place.expired());
  CHECK(other.place.expired());
}

TEST_CASE("Lobby: a session that was taken counts until it is somewhere else, or back") {
  IsolatedExecutor isolated;
  const auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer trainer(1);
  lobby->Add(std::move(trainer.session));
  auto taken = lobby->Take(trainer.token);
  CHECK(lobby->size() == 1);
  lobby->Add(std::move(taken));
  CHECK_FALSE(taken);
  lobby->Settle();
  CHECK(lobby->size() == 1);
  taken = lobby->Take(trainer.token);
  CHECK(lobby->Take(trainer.token) == nullptr);
  lobby->Settle();
  CHECK(lobby->size() == 0);
}

TEST_CASE("Lobby: who hangs up has gone, before or after it came here") {
  IsolatedExecutor isolated;
  const auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer before(1);
  AttachedTrainer after(2);
  AttachedTrainer stays(3);
  before.lifeline.Reset();
  lobby->Add(std::move(before.session));
  lobby->Add(std::move(after.session));
  lobby->Add(std::move(stays.session));
  after.lifeline.Reset();
  CHECK(before.Ended());
  CHECK(after.Ended());
  CHECK(lobby->size() == 1);
  CHECK(lobby->Has(stays.token));
}

TEST_CASE("Lobby: a process that ends has gone, whoever keeps its connection") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  IsolatedExecutor isolated;
  const auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer trainer(1);
  trainer.session->pidfd.Reset(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  REQUIRE(trainer.session->pidfd.valid());
  lobby->Add(std::move(trainer.session));
  ::kill(child, SIGKILL);
  CHECK(trainer.Ended());
  CHECK(lobby->size() == 0);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
}

TEST_CASE("Lobby: a trainer that waits, and writes where nobody reads, costs no time") {
  IsolatedExecutor isolated;
  const auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer trainer(1);
  lobby->Add(std::move(trainer.session));
  CHECK(::send(trainer.lifeline.get(), "rubbish", 7, MSG_NOSIGNAL) == 7);
  CHECK(ProcessorSecondsIn(std::chrono::milliseconds(500)) < 0.1);
  CHECK(lobby->size() == 1);
}

TEST_CASE("Lobby: a number that comes round while its owner is here is nobody else's") {
  IsolatedExecutor isolated;
  const auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer here(7);
  AttachedTrainer again(7);
  const std::string token = here.token;
  again.session->token = std::string(32, 'f');
  lobby->Add(std::move(here.session));
  lobby->Add(std::move(again.session));
  CHECK_THAT(again.LastWords(), Contains("its number is another's"));
  CHECK_FALSE(lobby->Has(std::string(32, 'f')));
  CHECK(lobby->Has(token));
  CHECK(lobby->size() == 1);
}

TEST_CASE("Lobby: when ringd stops all hear why, those that come too late, too") {
  IsolatedExecutor isolated;
  const auto lobby = *Lobby::Create(&isolated);
  AttachedTrainer early(1);
  AttachedTrainer late(2);
  lobby->Add(std::move(early.session));
  lobby->Stop("ringd on node-a was stopped");
  CHECK_THAT(early.LastWords(), Contains("ringd on node-a was stopped"));
  lobby->Add(std::move(late.session));
  CHECK_THAT(late.LastWords(), Contains("ringd on node-a was stopped"));
  CHECK(early.Ended());
  CHECK(late.Ended());
  lobby->Stop("once more");
}

}  // namespace
}  // namespace ringd
