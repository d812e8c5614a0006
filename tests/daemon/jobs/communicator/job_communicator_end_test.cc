// What is written where, and what the ranks hear, if a rank goes or the job fails amid an
// operation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "daemon/jobs/communicator/job_communicator.h"
#include "tests/daemon/jobs/communicator/played_job.h"

namespace ringd {
namespace {

TEST_CASE("JobCommunicator: nothing is written to ranks that have heard of a failure") {
  // Before the ring has ended, and after.
  const bool landing = GENERATE(false, true);
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 2) job.reducers.Step();
  if (landing) {
    job.Complete();
    CHECK(job.Advance() > 0);
  }
  job.communicator->Fail(absl::AbortedError("rank 1 was killed"));
  CHECK(job.wire->aborted);
  // What a reducer is amid, its ranks must not take for theirs yet.
  CHECK(job.Completed(0) == 0);
  CHECK_FALSE(job.communicator->CopyPiece());
  job.reducers.FinishOne();
  CHECK(job.Advance() == 0);
  CHECK(job.Completed(0) == 0);
  CHECK_FALSE(job.communicator->Quiet());
  const int wakes = job.reducers.wakes;
  job.reducers.FinishOne();
  CHECK(job.reducers.wakes == wakes + 1);
  job.Advance();
  for (std::size_t m = 0; m < kRanks; ++m) {
    CHECK(job.Completed(m) == 1);
    CHECK(job.Failed(m) == 1);
  }
  // They have their memory back: it stays as they leave it.
  job.Overwrite();
  CHECK(job.LeavesAlone());
  // The backend's own end is waited for, unless it has come.
  CHECK(job.communicator->Quiet() == landing);
  if (!landing) job.Complete(CollectiveOutcome::kAborted);
  job.Advance();
  CHECK(job.communicator->Quiet());
  // Who submits now hears at once.
  job.Submit();
  CHECK(job.Failed(0) == 2);
}

TEST_CASE("JobCommunicator: a dead rank's arena stays while a reducer writes to it") {
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.Complete();
  while (job.Advance() > 0) {
  }
  // Its session has ended; the communicator alone holds it now, and the job must hold the
  // communicator.
  CHECK(job.sessions[1].use_count() == 1);
  job.communicator->Fail(absl::AbortedError("rank 1 was killed"));
  CHECK_FALSE(job.communicator->Quiet());
  while (job.reducers.claimed() > 0) job.reducers.FinishOne();
  job.Advance();
  CHECK(job.communicator->Quiet());
  job.communicator.reset();
  CHECK(job.sessions[1].expired());
}

TEST_CASE("JobCommunicator: what one who left had submitted is not summed when the others come") {
  PlayedJob job;
  job.Submit();
  job.Advance();
  REQUIRE(job.communicator->Leave(1));
  CHECK(job.Failed(1) == 1);  // cancelled
  CHECK(job.Completed(0) == 0);
  CHECK(job.communicator->HasWithdrawn());
  // Its memory is its own again.
  std::fill_n(job.arenas[1], kBytes / 4, 7.0F);
  REQUIRE(job.communicator->OnMessage(Execute{job.operations++, {"t"}}, Clock::now()).ok());
  const auto advanced = job.communicator->Advance(Clock::now());
  REQUIRE_FALSE(advanced.ok());
  CHECK(job.wire->posted.empty());
  const std::string why(advanced.status().message());
  CHECK(why == "rank 1, pid 0 on node-a left job 'job' (shutdown) while tensor 't' was in flight");
  job.communicator->Fail(advanced.status());
  CHECK(job.Failed(0) == 1);
  CHECK(job.Completed(1) == 1);
  CHECK_FALSE(job.communicator->HasWithdrawn());
  // What it still submits ends at once.
  job.Submit();
  CHECK(job.Completed(1) == 2);
}

TEST_CASE(
    "JobCommunicator: one who leaves amid an operation gets his memory back before he hears it") {
  PlayedJob job;
  const bool landing = GENERATE(false, true);
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  if (landing) {
    job.Complete();
    CHECK(job.Advance() > 0);
  }
  REQUIRE_FALSE(job.communicator->Leave(1));
  CHECK(job.Completed(1) == 0);
  job.communicator->Fail(absl::AbortedError("rank 1 left"));
  CHECK(job.wire->aborted);
  std::thread reducer([&job] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    while (job.reducers.claimed() > 0) job.reducers.FinishOne();
  });
  job.communicator->Settle();
  reducer.join();
  CHECK(job.Failed(0) == 1);
  CHECK(job.Failed(1) == 1);
  job.Overwrite();
  CHECK(job.LeavesAlone());
}

TEST_CASE("JobCommunicator: at the very end it waits for reducers and completes what was put off") {
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.communicator->Fail(absl::AbortedError("ringd was stopped"));
  CHECK(job.Failed(0) == 0);
  std::thread reducer([&job] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    job.reducers.FinishOne();
  });
  job.communicator->Settle();
  reducer.join();
  CHECK(job.Failed(0) == 1);
  CHECK(job.Failed(1) == 1);
}

}  // namespace
}  // namespace ringd
