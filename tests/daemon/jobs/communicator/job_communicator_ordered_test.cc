// Operations that are matched by order: their guards, and how those end that differ.
#include <catch2/catch.hpp>

#include "daemon/jobs/communicator/job_communicator.h"
#include "daemon/schedule/node/ordered_scheduler.h"
#include "tests/daemon/jobs/communicator/played_job.h"

namespace ringd {
namespace {

// The operation is posted: its guard, then its data.
struct OrderedJob : PlayedJob {
  OrderedJob() : PlayedJob(/*by_order=*/true) {
    Submit();
    Advance();
    REQUIRE(wire->posted.size() == 2);
    guard = wire->posted[0];
    data = wire->posted[1];
  }
  void RunRingToItsEnd() {
    wire->RunRing(data);
    Settle();
  }
  // Reducers copy, or who has nothing else to do.
  void Settle() {
    for (int step = 0; step < 300; ++step) {
      reducers.Step();
      Advance();
    }
  }
  // The only message so far says how this node describes the operation.
  bool HasAnnounced() const {
    return link.sent.size() == 1 && link.sent[0].ready().tensors_size() == 1 &&
           link.sent[0].ready().tensors(0).name() == "operation 0" &&
           link.sent[0].communicator() == 1;
  }
  bool End() {
    return communicator->OnMessage(FailTensor{"operation 0", "they differ"}, Clock::now()).ok();
  }

  CollectiveRequest guard;
  CollectiveRequest data;
};

TEST_CASE("JobCommunicator: by order, an operation ends when its data and its guard have") {
  const bool guard_first = GENERATE(false, true);
  OrderedJob job;
  CHECK(job.guard.id == OrderedScheduler::GuardId(job.data.id));
  CHECK(job.guard.description == job.data.description);
  CHECK(job.guard.description != 0);
  job.RunRingToItsEnd();
  job.wire->Complete(guard_first ? job.guard : job.data, CollectiveOutcome::kDone);
  job.Advance();
  job.Advance();
  CHECK(job.Completed(0) == 0);
  job.wire->Complete(guard_first ? job.data : job.guard, CollectiveOutcome::kDone);
  job.Settle();
  for (std::size_t m = 0; m < kRanks; ++m) {
    CHECK(job.Completed(m) == 1);
    CHECK(job.Failed(m) == 0);
    CHECK(job.HasResults(m));
  }
  CHECK(job.link.sent.empty());
  // The next one is in the next place.
  job.registration.tensor = 1;
  job.Submit();
  job.Advance();
  REQUIRE(job.wire->posted.size() == 4);
  CHECK(job.wire->posted[3].id == OrderedScheduler::DataId(1, 0));
}

TEST_CASE("JobCommunicator: by order, what differs ends when the coordinator says so") {
  const bool by_guard = GENERATE(false, true);
  OrderedJob job;
  job.wire->RunRing(job.data);
  while (job.reducers.claimed() < 1) job.reducers.Step();
  job.wire->Complete(by_guard ? job.guard : job.data, CollectiveOutcome::kDisagreement);
  job.Advance();
  job.Advance();
  CHECK(job.HasAnnounced());
  CHECK(job.wire->cancelled == std::vector{by_guard ? job.data.id : job.guard.id});
  CHECK(job.communicator->OnOrderInquiry("operation 0").ok());
  job.Advance();
  CHECK(job.link.sent.size() == 1);
  CHECK(job.Completed(0) == 0);
  REQUIRE(job.End());
  job.Advance();
  // A reducer is amid a piece.
  CHECK(job.Completed(0) == 0);
  job.reducers.FinishOne();
  job.Advance();
  for (std::size_t m = 0; m < kRanks; ++m) {
    CHECK(job.Completed(m) == 1);
    CHECK(job.Failed(m) == 1);
  }
  job.Overwrite();
  CHECK(job.LeavesAlone());
  job.wire->Complete(by_guard ? job.data : job.guard, CollectiveOutcome::kCancelled);
  job.Advance();
  CHECK(job.communicator->Quiet());
  CHECK_FALSE(job.communicator->failed());
}

TEST_CASE("JobCommunicator: by order, one that another node has found to differ is taken back") {
  OrderedJob job;
  CHECK(job.communicator->OnOrderInquiry("operation 0").ok());
  job.Advance();
  CHECK(job.HasAnnounced());
  REQUIRE(job.End());
  job.Advance();
  CHECK(job.wire->cancelled == std::vector{job.guard.id, job.data.id});
  CHECK(job.Completed(0) == 1);
  CHECK(job.Failed(0) == 1);
  for (const CollectiveRequest& request : {job.guard, job.data}) {
    job.wire->Complete(request, CollectiveOutcome::kCancelled);
    job.Advance();
  }
  CHECK(job.communicator->Quiet());
}

TEST_CASE("JobCommunicator: by order, an end that nobody has asked for fails the communicator") {
  OrderedJob job;
  CHECK_FALSE(job.End());
  CHECK_FALSE(job.communicator->OnOrderInquiry("x").ok());
  PlayedJob by_name;
  CHECK_FALSE(by_name.communicator->OnOrderInquiry("operation 0").ok());
}

}  // namespace
}  // namespace ringd
