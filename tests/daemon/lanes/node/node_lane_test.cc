#include "daemon/lanes/node/node_lane.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <vector>

#include "tests/daemon/lanes/node/local_job.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kMeta = 7;

// Nothing ends here by the lane's doing: it only asks for metas.
class Metas final : public LaneEvents {
 public:
  void OnMoved(OperationId, const Completion&) override { FAIL("nothing is on the wire"); }
  void OnGivenUp(OperationId, Clock::time_point) override { FAIL("nothing was started"); }
  void OnFinished(const Execution&, Clock::time_point) override { FAIL("nothing was started"); }
  const TensorMeta* FindMeta(std::uint32_t meta_id) const override {
    return meta_id == kMeta ? &meta_ : nullptr;
  }

 private:
  const TensorMeta meta_ = [] {
    TensorMeta meta;
    meta.shape = {100};
    return meta;
  }();
};

struct Lanes {
  explicit Lanes(std::size_t count)
      : job(count), lane(std::make_unique<NodeLane>(std::move(job.group), count, metas)) {}

  std::vector<WaitingSubmission> Waiting(Clock::time_point before) {
    all = true;
    std::vector<WaitingSubmission> waiting;
    lane->AddWaiting(before, most, all, waiting);
    return waiting;
  }

  LocalJob job;
  Metas metas;
  std::unique_ptr<Lane> lane;
  std::size_t most = SIZE_MAX;
  bool all = true;
};

TEST_CASE("NodeLane: numbers the names of what the ranks combine, and carries nothing out") {
  Lanes lanes(2);
  CHECK(lanes.lane->CombinesLocally());
  CHECK(*lanes.lane->HoldName("a") == 0);
  CHECK(*lanes.lane->HoldName("b") == 1);
  CHECK(lanes.lane->tensor_count() == 2);
  CHECK(lanes.lane->NameOf(1) == "b");
  CHECK_FALSE(lanes.lane->Start(nullptr, NodeIndex(0), 0).ok());
  CHECK(*lanes.lane->Advance(Clock::now()) == 0);
  CHECK_FALSE(lanes.lane->Busy());
  CHECK(lanes.lane->Quiet());
}

TEST_CASE("NodeLane: tells who waits for whom, with the bytes of metas that it knows") {
  Lanes lanes(2);
  REQUIRE(lanes.lane->HoldName("a").ok());
  REQUIRE(lanes.lane->HoldName("b").ok());
  CHECK(lanes.lane->RanksRest());
  lanes.job.Post(0, 1, 0, kMeta);
  lanes.job.Post(1, 1, 0, kMeta + 1);
  CHECK_FALSE(lanes.lane->RanksRest());
  CHECK(lanes.lane->HasInFlight(1));
  CHECK_FALSE(lanes.lane->HasInFlight(0));
  const Clock::time_point start = Clock::now();
  for (int look = 0; look < 3; ++look) lanes.lane->Look(start + look * milliseconds(200));
  const Clock::time_point later = start + milliseconds(500);
  const std::optional<Clock::time_point> since = lanes.lane->WaitingSince(later);
  REQUIRE(since.has_value());
  CHECK_FALSE(lanes.lane->WaitingSince(*since - milliseconds(1)).has_value());
  const std::vector<WaitingSubmission> waiting = lanes.Waiting(later);
  CHECK(lanes.all);
  REQUIRE(waiting.size() == 2);
  for (const WaitingSubmission& entry : waiting) {
    CHECK(entry.member == 1);
    CHECK(entry.absent_members == std::vector{0});
    CHECK(entry.state == TensorState::kIdle);
    CHECK(entry.bytes == (entry.name == "a" ? 400 : 0));
  }
  lanes.most = 1;
  CHECK(lanes.Waiting(later).size() == 1);
  CHECK_FALSE(lanes.all);
}

TEST_CASE("NodeLane: whom a tensor waits for depends on where it is") {
  Lanes lanes(3);
  REQUIRE(lanes.lane->HoldName("a").ok());
  lanes.job.Post(0, 1, 0, kMeta);
  // Nobody has submitted it here: it is in host memory.
  CHECK(lanes.lane->MembersWithout("a", {0, 1, 2}) == std::vector{0, 2});
  CHECK_FALSE(lanes.lane->AllHaveSubmitted("a", {0, 1, 2}));
  // Somebody has: it is on GPUs.
  CHECK(lanes.lane->MembersWithout("a", {2}) == std::vector{2});
  CHECK_FALSE(lanes.lane->AllHaveSubmitted("a", {2}));
  CHECK(lanes.lane->AllHaveSubmitted("a", {}));
  // All have it in host memory, and one is amid its part.
  for (const std::size_t member : {0, 2}) lanes.job.Post(0, member, 0, kMeta);
  lanes.job.view.Member(2).reducing = 1;
  CHECK(lanes.lane->MembersWithout("a", {0, 1, 2}) == std::vector{2});
  CHECK(lanes.lane->AllHaveSubmitted("a", {0, 1, 2}));
}

TEST_CASE("NodeLane: counts what the ranks have carried out") {
  Lanes lanes(2);
  REQUIRE(lanes.lane->HoldName("a").ok());
  for (const std::size_t member : {0, 1}) lanes.job.Post(0, member, 0, kMeta);
  for (const std::size_t member : {0, 1}) lanes.job.End(0, member, 0);
  lanes.job.view.Member(0).bytes = 400;
  const Lane::Carried carried = lanes.lane->CarriedByRanks();
  CHECK(carried.tensors == 2);
  CHECK(carried.operations == 1);
  CHECK(carried.payload_bytes == 400);
  MemberCounters counters{.submitted = 1, .ended = 1, .failed = 0, .bytes = 4};
  lanes.lane->AddCounters(0, counters);
  CHECK(counters.submitted == 2);
  CHECK(counters.ended == 2);
  CHECK(counters.bytes == 404);
}

}  // namespace
}  // namespace ringd
