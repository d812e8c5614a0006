#include "daemon/jobs/plans/plan_description.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/peers/measurement_conversion.h"

namespace ringd {
namespace {

double Milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

const char* Name(PlanOrigin origin) {
  switch (origin) {
    case PlanOrigin::kNone:
      return "none";
    case PlanOrigin::kLearned:
      return "learned";
    case PlanOrigin::kKept:
      return "kept";
    case PlanOrigin::kReplanned:
      return "replanned";
  }
  return "invalid";
}

}  // namespace

std::string Name(const FusionPolicy& policy) {
  switch (policy.kind) {
    case FusionPolicy::Kind::kLearned:
      return "learned";
    case FusionPolicy::Kind::kPinned:
      return "pinned";
    case FusionPolicy::Kind::kFixed:
      return absl::StrCat(policy.bytes);
    case FusionPolicy::Kind::kOff:
      return "off";
  }
  return "invalid";
}

v1::Plan DescribePlan(const CoordinatorStatus& status, const PlanTuner& tuner,
                      const FusionPolicy& policy) {
  v1::Plan plan;
  plan.set_fusion(Name(policy));
  plan.set_origin(Name(status.origin));
  plan.set_began_as(Name(status.first_origin));
  plan.set_schedule_epoch(status.epoch);
  plan.set_replans(status.replans);
  v1::LinkFigures& link = *plan.mutable_link();
  link.set_latency_us(Microseconds(status.link.latency));
  link.set_gbit_per_second(status.link.bytes_per_second * 8 / 1e9);
  link.set_overhead_us(Microseconds(status.link.operation_overhead));
  link.set_source(Name(tuner.source()));
  link.set_samples(tuner.samples());
  link.set_small_all_reduce_bytes(status.link.small_bytes);
  if (status.link.IsFlat(0)) {
    link.set_flat_all_reduce_bytes(status.link.flat_bytes /
                                   static_cast<std::size_t>(status.link.node_count - 1));
  }
  std::vector<const CoordinatorBucketStatus*> buckets;
  for (const CoordinatorBucketStatus& bucket : status.buckets) buckets.push_back(&bucket);
  std::stable_sort(buckets.begin(), buckets.end(), [](const auto* a, const auto* b) {
    return a->predicted.start < b->predicted.start;
  });
  for (const CoordinatorBucketStatus* bucket : buckets) {
    v1::PlannedBucket* shown = plan.add_buckets();
    shown->set_channel(bucket->channel);
    shown->set_tensors(static_cast<std::uint32_t>(bucket->tensors.size()));
    shown->set_bytes(bucket->bytes);
    shown->set_ready_ms(Milliseconds(bucket->predicted.ready));
    shown->set_predicted_start_ms(Milliseconds(bucket->predicted.start));
    shown->set_predicted_end_ms(Milliseconds(bucket->predicted.end));
    if (bucket->tensors.empty()) continue;
    shown->set_first_tensor(bucket->tensors.front());
    shown->set_last_tensor(bucket->tensors.back());
  }
  plan.set_last_ready_ms(Milliseconds(status.plan.compute));
  plan.set_predicted_ms(Milliseconds(status.plan.learned));
  plan.set_predicted_fixed_64mib_ms(Milliseconds(status.plan.fixed_64mib));
  plan.set_predicted_per_tensor_ms(Milliseconds(status.plan.per_tensor));
  return plan;
}

void DescribeFlat(bool chosen, const StoredTrial& tried, v1::LinkFigures& link) {
  link.set_flat_source(!chosen ? "setting" : tried.times.empty() ? "assumed" : "measured");
  if (tried.times.empty()) return;
  for (const AllReduceTimes& times : tried.times) *link.add_tried() = ToProto(times);
  link.set_tried_unix_seconds(static_cast<std::uint64_t>(tried.unix_seconds));
}

}  // namespace ringd
