// What a job of one node says of a rank that has gone, before all have come.
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include "daemon/jobs/job.h"
#include "tests/daemon/lanes/rank_exchange/attached_rank.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

// A child that does nothing, until it is killed.
struct Child {
  Child() : pid(::fork()) {
    while (pid == 0) ::pause();
  }
  ~Child() {
    Kill();
    ::waitpid(pid, nullptr, 0);
  }
  // Until all can see it.
  void Kill() const {
    ::kill(pid, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  }

  pid_t pid;
};

// One node's job, whose third rank is missing.
struct Gathering {
  Gathering() {
    Job::Options options;
    options.job_id = "job";
    options.size = options.local_size = 3;
    options.node_name = "node";
    options.start_timeout = std::chrono::seconds(100);
    job = std::make_unique<Job>(options, nullptr, now);
    for (int rank = 0; rank < 2; ++rank) {
      v1::JoinRequest request;
      request.set_rank(rank);
      request.set_size(3);
      request.set_local_rank(rank);
      request.set_local_size(3);
      request.set_program("/home/me/train.py\n");
      job->Join(ranks[rank].session, request, [](const absl::Status&, const v1::JoinReply&) {});
    }
  }

  std::string Cause() const { return std::string(job->failure().message()); }

  Clock::time_point now = Clock::now();
  Child children[2];
  AttachedRank ranks[2] = {AttachedRank(children[0].pid), AttachedRank(children[1].pid)};
  std::unique_ptr<Job> job;
};

TEST_CASE("Job: the first of two deaths is told, also if it is known later how it came") {
  Gathering world;
  world.children[1].Kill();
  // Its connection has ended, and it is still about to end itself.
  world.job->OnSessionLost(*world.ranks[0].session, "has gone", /*for_cause=*/false, world.now);
  world.job->OnSessionLost(*world.ranks[1].session, "has gone", /*for_cause=*/false,
                           world.now + milliseconds(1));
  world.job->Tick(world.now + milliseconds(500));
  CHECK(world.job->state() == Job::State::kJoining);
  world.children[0].Kill();
  world.job->Tick(world.now + milliseconds(550));
  CHECK(world.Cause() == "rank 0, pid " + std::to_string(world.children[0].pid) +
                             " on node (train.py?), was killed by signal 9 (Killed)"
                             " before all ranks had joined");
}

TEST_CASE("Job: a launcher's word of how a rank ended is told at once") {
  Gathering world;
  world.job->OnSessionLost(*world.ranks[0].session, "has gone", /*for_cause=*/false, world.now);
  // That of who has this number now is another's, or comes too early.
  CHECK(world.job->OnExitReport(Rank(1), 1, {.exit_code = 0, .signal = 0}));
  CHECK(world.job->OnExitReport(Rank(0), 1, {.exit_code = 0, .signal = 0}));
  CHECK_THAT(world.Cause(), Contains("(train.py?), exited with code 0 before"));
}

TEST_CASE("Job: a rank whose process ends before it joins is not waited for") {
  Gathering world;
  CHECK_FALSE(world.job->OnExitReport(Rank(3), 77, {.exit_code = 0, .signal = 0}));
  CHECK(world.job->state() == Job::State::kJoining);
  CHECK(world.job->OnExitReport(Rank(2), 77, {.exit_code = 0, .signal = 0}));
  CHECK(world.Cause() == "rank 2, pid 77 on node, exited with code 0 before it had joined");
}

TEST_CASE("Job: why ringd has ended a session is told at once, however its process ends") {
  Gathering world;
  world.children[0].Kill();
  world.job->OnSessionLost(*world.ranks[0].session, "broke the protocol", /*for_cause=*/true,
                           world.now);
  CHECK_THAT(world.Cause(), Contains("(train.py?), broke the protocol before"));
}

TEST_CASE("Job: a process that has only closed its connection is not said to have ended") {
  Gathering world;
  world.job->OnSessionLost(*world.ranks[0].session, "closed it", /*for_cause=*/false, world.now);
  world.job->Tick(world.now + std::chrono::seconds(1));
  CHECK_THAT(world.Cause(), Contains("(train.py?), closed it before"));
}

TEST_CASE("Job: what a failed rank says of itself is the cause, as one clean line") {
  Gathering world;
  world.job->LeaveFailed(*world.ranks[1].session, "ended:\n\x1b[2J\xff" + std::string(600, 'x'),
                         world.now);
  CHECK(world.Cause() == "rank 1, pid " + std::to_string(world.children[1].pid) +
                             " on node (train.py?), ended: ?[2J?" + std::string(500, 'x') +
                             ", before all ranks had joined");
  // It can't be told again, nor by the end that follows.
  const std::string cause = world.Cause();
  world.job->LeaveFailed(*world.ranks[1].session, "again", world.now);
  world.job->OnSessionLost(*world.ranks[1].session, "has gone", /*for_cause=*/false, world.now);
  world.job->Tick(world.now + std::chrono::seconds(1));
  CHECK(world.Cause() == cause);
  v1::Job shown;
  world.job->Describe(&shown, world.now);
  CHECK(shown.local_members(1).state() == "dead");
}

TEST_CASE("Job: an earlier death is told, and not what another rank makes of it") {
  Gathering world;
  world.job->OnSessionLost(*world.ranks[0].session, "has gone", /*for_cause=*/false, world.now);
  world.job->LeaveFailed(*world.ranks[1].session, "ended by an exception",
                         world.now + milliseconds(1));
  CHECK(world.job->state() == Job::State::kJoining);
  world.job->OnExitReport(Rank(1), 1, {.exit_code = 1, .signal = 0});
  world.children[0].Kill();
  world.job->Tick(world.now + milliseconds(50));
  CHECK_THAT(world.Cause(), Contains("rank 0, ") && Contains("signal 9"));
}

TEST_CASE("Job: a launcher's word does not replace what a failed rank has said") {
  Gathering world;
  CHECK(world.job->OnExitReport(Rank(1), 1, {.exit_code = 1, .signal = 0}));
  world.job->LeaveFailed(*world.ranks[1].session, "ended by an exception", world.now);
  CHECK_THAT(world.Cause(), Contains("(train.py?), ended by an exception, before all"));
}

}  // namespace
}  // namespace ringd
