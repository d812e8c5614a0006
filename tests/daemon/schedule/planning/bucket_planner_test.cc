#include "daemon/schedule/planning/bucket_planner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// 1 ms per MiB on two nodes and 1 ms per operation: easy to reckon with.
LinkModel EasyLink() {
  LinkModel link;
  link.node_count = 2;
  link.latency = std::chrono::microseconds(500);
  link.operation_overhead = nanoseconds(0);
  link.bytes_per_second = 1000.0 * kMiB;
  return link;
}

std::vector<PlanTensor> Evenly(int count, std::size_t bytes, nanoseconds gap) {
  std::vector<PlanTensor> tensors;
  for (int i = 0; i < count; ++i) tensors.push_back({bytes, gap * (i + 1), 0, false});
  return tensors;
}

bool CoversAll(const BucketPlan& plan, std::size_t count) {
  std::vector<std::size_t> seen;
  for (const auto& bucket : plan) {
    if (bucket.empty() || !std::is_sorted(bucket.begin(), bucket.end())) return false;
    seen.insert(seen.end(), bucket.begin(), bucket.end());
  }
  std::sort(seen.begin(), seen.end());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] != i) return false;
  }
  return seen.size() == count;
}

// The earliest end over all ways to cut `tensors`, by trying them all.
nanoseconds BestByTrying(const std::vector<PlanTensor>& tensors, const LinkModel& link) {
  nanoseconds best = nanoseconds::max();
  for (unsigned cuts = 0; cuts < 1u << (tensors.size() - 1); ++cuts) {
    BucketPlan plan{{0}};
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      if ((cuts >> (i - 1) & 1u) != 0) plan.emplace_back();
      plan.back().push_back(i);
    }
    best = std::min(best, PredictStepTime(tensors, plan, link));
  }
  return best;
}

}  // namespace

TEST_CASE("LinkModel: an all-reduce costs its messages and its bytes") {
  LinkModel link = EasyLink();
  CHECK(link.AllReduceTime(0) == milliseconds(1));
  CHECK(link.AllReduceTime(4 * kMiB) == milliseconds(5));
  link.node_count = 4;
  CHECK(link.AllReduceTime(4 * kMiB) == milliseconds(9));
  link.node_count = 1;
  CHECK(link.AllReduceTime(4 * kMiB) == nanoseconds(0));
}

TEST_CASE("LinkModel: no bandwidth and huge sizes do not overflow") {
  LinkModel link = EasyLink();
  link.bytes_per_second = 0;
  CHECK(link.AllReduceTime(std::numeric_limits<std::size_t>::max()) > std::chrono::hours(1));
}

TEST_CASE("PredictStepTime: buckets wait for their tensors and for the link") {
  const std::vector<PlanTensor> tensors = Evenly(3, kMiB, milliseconds(1));
  const LinkModel link = EasyLink();
  CHECK(PredictStepTime(tensors, {{0, 1, 2}}, link) == milliseconds(3 + 4));
  // Each takes 2 ms: the first ends at 3, the others follow without a gap.
  CHECK(PredictStepTime(tensors, {{0}, {1}, {2}}, link) == milliseconds(7));
  CHECK(PredictStepTime(tensors, {{0, 1}, {2}}, link) == milliseconds(2 + 3 + 2));
}

TEST_CASE("CostModelPlanner: with latency only, everything travels together") {
  LinkModel link = EasyLink();
  link.bytes_per_second = 1e15;
  const std::vector<PlanTensor> tensors = Evenly(100, 4096, std::chrono::microseconds(1));
  const BucketPlan plan = CostModelPlanner(64 * kMiB).Plan(tensors, link);
  CHECK(CoversAll(plan, tensors.size()));
  CHECK(plan.size() == 1);
}

TEST_CASE("CostModelPlanner: the last bucket is small when the bytes cost") {
  // 60 ms of transfer in 100 ms of computing: all but the last bucket can be hidden.
  const std::vector<PlanTensor> tensors = Evenly(60, kMiB, std::chrono::microseconds(1700));
  const BucketPlan plan = CostModelPlanner(64 * kMiB).Plan(tensors, EasyLink());
  CHECK(CoversAll(plan, tensors.size()));
  CHECK(plan.size() > 2);
  CHECK(plan.back().size() <= 2);
  CHECK(PredictStepTime(tensors, plan, EasyLink()) <= tensors.back().ready + milliseconds(3));
}

TEST_CASE("CostModelPlanner: small buckets that delay nothing are joined") {
  // The link could take each alone, in the gaps; joined, the end is the same with fewer operations.
  const std::vector<PlanTensor> tensors = Evenly(60, 1024, milliseconds(3));
  const BucketPlan plan = CostModelPlanner(64 * kMiB).Plan(tensors, EasyLink());
  CHECK(CoversAll(plan, tensors.size()));
  CHECK(plan.size() <= 2);
  CHECK(PredictStepTime(tensors, plan, EasyLink()) <=
        tensors.back().ready + milliseconds(1) + std::chrono::microseconds(100));
}

TEST_CASE("CostModelPlanner: nothing is joined that a slow moment of the link would make late") {
  // 2 MiB in 60 tensors, and 3 ms later the last one: joined they would end just before it, on the
  // link as measured.
  std::vector<PlanTensor> tensors = Evenly(60, 2 * kMiB / 60, milliseconds(1));
  tensors.push_back({1024, tensors.back().ready + std::chrono::microseconds(3100), 0, false});
  LinkModel half = EasyLink();
  half.bytes_per_second /= 2;
  const BucketPlan plan = CostModelPlanner(64 * kMiB).Plan(tensors, EasyLink());
  CHECK(CoversAll(plan, tensors.size()));
  CHECK(plan.size() < 20);
  CHECK(PredictStepTime(tensors, plan, half) <=
        tensors.back().ready + milliseconds(1) + std::chrono::microseconds(100));
}

TEST_CASE("CostModelPlanner: what is as small as the last bucket waits for it") {
  // The first two could be over before the third comes, which then would go alone; but each is an
  // operation.
  LinkModel link;
  link.bytes_per_second = 1e9;
  const nanoseconds apart = link.AllReduceTime(1024);
  std::vector<PlanTensor> tensors = Evenly(3, 1024, apart);
  CHECK(CostModelPlanner(64 * kMiB).Plan(tensors, link) == BucketPlan{{0, 1, 2}});
  SECTION("not if its bytes take longer than an operation costs") {
    for (PlanTensor& tensor : tensors) {
      tensor.bytes = 25'000;
      tensor.ready *= 3;
    }
    CHECK(CostModelPlanner(64 * kMiB).Plan(tensors, link) == BucketPlan{{0, 1}, {2}});
  }
}

TEST_CASE("CostModelPlanner: finds what trying all plans finds") {
  LinkModel link = EasyLink();
  std::uint64_t state = 7;
  const auto next = [&state](std::uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<PlanTensor> tensors;
    nanoseconds ready{0};
    for (int i = 0; i < 9; ++i) {
      ready += std::chrono::microseconds(next(3000));
      tensors.push_back({next(3 * kMiB) + 1, ready, 0, false});
    }
    // The planner reckons with a link that is a tenth slower.
    LinkModel slower = link;
    slower.bytes_per_second /= 1.1;
    const BucketPlan plan = CostModelPlanner(64 * kMiB).Plan(tensors, link);
    REQUIRE(CoversAll(plan, tensors.size()));
    REQUIRE(PredictStepTime(tensors, plan, slower) == BestByTrying(tensors, slower));
  }
}

TEST_CASE("CostModelPlanner: never worse than fixed or no fusion for ResNet-like gradients") {
  std::vector<PlanTensor> tensors;
  for (int i = 0; i < 314; ++i) {
    const std::size_t bytes = i % 3 == 0 ? 2 * kMiB : 4096;
    tensors.push_back({bytes, std::chrono::microseconds(900) * (i + 1), 0, false});
  }
  for (const double gigabits : {1.0, 10.0, 100.0}) {
    LinkModel link;
    link.node_count = 4;
    link.bytes_per_second = gigabits * 1e9 / 8;
    const nanoseconds learned =
        PredictStepTime(tensors, CostModelPlanner(64 * kMiB).Plan(tensors, link), link);
    CHECK(learned <=
          PredictStepTime(tensors, ThresholdPlanner(64 * kMiB).Plan(tensors, link), link));
    CHECK(learned <= PredictStepTime(tensors, ThresholdPlanner(0).Plan(tensors, link), link));
  }
}

TEST_CASE("Planners: no bucket exceeds the limit unless it is one tensor") {
  std::vector<PlanTensor> tensors = Evenly(40, 3 * kMiB, nanoseconds(10));
  tensors[7].bytes = 100 * kMiB;
  for (const bool cost_model : {true, false}) {
    const BucketPlan plan = cost_model ? CostModelPlanner(8 * kMiB).Plan(tensors, EasyLink())
                                       : ThresholdPlanner(8 * kMiB).Plan(tensors, EasyLink());
    CHECK(CoversAll(plan, tensors.size()));
    for (const auto& bucket : plan) CHECK((bucket.size() <= 2));
  }
}

TEST_CASE("Planners: no bucket spans a barrier or mixes classes") {
  std::vector<PlanTensor> tensors = Evenly(30, 1024, nanoseconds(10));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].fusion_class = static_cast<std::uint32_t>(i % 2);
    tensors[i].barrier_before = i % 10 == 5;
  }
  for (const bool cost_model : {true, false}) {
    const BucketPlan plan = cost_model ? CostModelPlanner(kMiB).Plan(tensors, EasyLink())
                                       : ThresholdPlanner(kMiB).Plan(tensors, EasyLink());
    CHECK(CoversAll(plan, tensors.size()));
    CHECK(plan.size() == 8);  // two classes in each of four segments
    for (const auto& bucket : plan) {
      for (std::size_t position : bucket) {
        CHECK(tensors[position].fusion_class == tensors[bucket[0]].fusion_class);
        CHECK((position + 5) / 10 == (bucket[0] + 5) / 10);
      }
    }
  }
}

TEST_CASE("CostModelPlanner: plans tens of thousands of tensors without taking them all apart") {
  const std::vector<PlanTensor> tensors = Evenly(30000, 1024, nanoseconds(1000));
  const BucketPlan plan = CostModelPlanner(64 * kMiB).Plan(tensors, EasyLink());
  CHECK(CoversAll(plan, tensors.size()));
}

TEST_CASE("Planners: no tensors, no buckets") {
  CHECK(CostModelPlanner(kMiB).Plan({}, EasyLink()).empty());
  CHECK(ThresholdPlanner(kMiB).Plan({}, EasyLink()).empty());
  CHECK(PredictStepTime({}, {}, EasyLink()) == nanoseconds(0));
}

}  // namespace ringd
