// When the ranks of a job over several nodes hear of a result, and for whom they wait.
#include "daemon/jobs/communicator/job_communicator.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/daemon/jobs/communicator/played_job.h"

namespace ringd {
namespace {

TEST_CASE("JobCommunicator: ranks hear of a result when the last piece is in its place") {
  PlayedJob job;
  job.StartAndRunRing();
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.Complete();
  // The engine does what nobody has begun, a piece in each turn, and then has nothing to do.
  int turns = 0;
  while (job.Advance() > 0) ++turns;
  CHECK(turns >= 15);
  CHECK(job.Completed(0) == 0);
  CHECK(job.Completed(1) == 0);
  CHECK_FALSE(job.communicator->Quiet());
  const int wakes = job.reducers.wakes;
  while (job.reducers.claimed() > 0) job.reducers.FinishOne();
  CHECK(job.reducers.wakes == wakes + 1);
  CHECK(job.Advance() > 0);
  for (std::size_t m = 0; m < kRanks; ++m) {
    CHECK(job.Completed(m) == 1);
    CHECK(job.Failed(m) == 0);
    CHECK(job.HasResults(m));
  }
  CHECK(job.communicator->Idle());
  // And again: nothing of the first is left.
  job.StartAndRunRing();
  job.Complete();
  while (job.Advance() > 0) {
  }
  CHECK(job.Completed(1) == 2);
}

TEST_CASE(
    "JobCommunicator: waits for a rank that stops in the middle of copying, and says for which") {
  PlayedJob job;
  StagingProgress progress{};
  CHECK(job.communicator->MembersWithout("t") == std::vector<int>{0, 1});
  job.Submit(&progress);
  CHECK(job.communicator->MembersWithout("t") == std::vector<int>{1});
  job.Advance();
  REQUIRE(job.communicator->OnMessage(Execute{job.operations++, {"t"}}, Clock::now()).ok());
  job.Advance();
  REQUIRE(job.wire->posted.size() == 1);
  BufferAccessor& accessor = *job.wire->posted.back().accessor;
  progress.source = AllStagingPieces(kBytes) / 2;
  CHECK(accessor.Input(0, kChunk) != nullptr);
  CHECK(accessor.Input(kBytes - kChunk, kBytes) == nullptr);
  CHECK(job.communicator->MembersWithout("t") == std::vector<int>{1});
  progress.source = AllStagingPieces(kBytes);
  CHECK(job.communicator->MembersWithout("t").empty());
  job.wire->RunRing(job.wire->posted.back());
  job.Complete();
  while (job.Advance() > 0) {
  }
  CHECK(job.Completed(1) == 1);
}

TEST_CASE("JobCommunicator: with nothing else to do the engine copies before the ring has ended") {
  PlayedJob job;
  CHECK_FALSE(job.communicator->CopyPiece());
  job.StartAndRunRing();
  while (job.communicator->CopyPiece()) {
  }
  CHECK(job.HasResults(1));
  CHECK(job.Completed(0) == 0);
  job.Complete();
  CHECK(job.Advance() > 0);
  CHECK(job.Completed(0) == 1);
}

TEST_CASE("JobCommunicator: a list has so many submissions of each rank, the oldest, and says so") {
  PlayedJob job;
  constexpr int kTensors = 100;
  std::vector<std::unique_ptr<Registration>> registrations;
  const auto start = Clock::now();
  for (int t = 0; t < kTensors; ++t) {
    auto& registration = *registrations.emplace_back(std::make_unique<Registration>());
    registration.name = "many" + std::to_string(t);
    registration.meta.shape = {1};
    REQUIRE(job.communicator->Number(registration).ok());
    CheckedSubmission submission;
    submission.registration = &registration;
    // Later names have waited for longer.
    job.communicator->Submit(0, submission, start - std::chrono::seconds(t));
  }
  bool all = false;
  CHECK(job.communicator->Waiting(Clock::time_point::max(), kTensors, all).size() == kTensors);
  CHECK(all);
  const auto waiting = job.communicator->Waiting(Clock::time_point::max(), 10, all);
  CHECK_FALSE(all);
  REQUIRE(waiting.size() == 10);
  for (int i = 0; i < 10; ++i) {
    CHECK(waiting[static_cast<std::size_t>(i)].name == "many" + std::to_string(kTensors - 1 - i));
  }
  job.communicator->Fail(absl::AbortedError("the end"));
}

}  // namespace
}  // namespace ringd
