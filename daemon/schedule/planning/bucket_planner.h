// Chooses which tensors travel together, from when they become ready and what the link costs.
//
// Thread safety: planners and the functions here are stateless; any thread.
#ifndef RINGD_DAEMON_SCHEDULE_PLANNING_BUCKET_PLANNER_H_
#define RINGD_DAEMON_SCHEDULE_PLANNING_BUCKET_PLANNER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/schedule/link/link_model.h"

namespace ringd {

struct PlanTensor {
  std::size_t bytes = 0;
  std::chrono::nanoseconds ready{0};  // since the start of the step
  // Only tensors of one class may share a bucket (kind, type, op, and what must not be fused).
  std::uint32_t fusion_class = 0;
  // May come only after those before it have completed: no bucket spans this point.
  bool barrier_before = false;
};

// Buckets in the order in which they become ready, each a list of positions in the tensor list.
using BucketPlan = std::vector<std::vector<std::size_t>>;

class BucketPlanner {
 public:
  virtual ~BucketPlanner() = default;

  // `tensors` are in readiness order. Every position appears in exactly one bucket, in increasing
  // order within its bucket.
  virtual BucketPlan Plan(const std::vector<PlanTensor>& tensors, const LinkModel& link) const = 0;
};

// Cuts where the step ends earliest according to the link model.
class CostModelPlanner final : public BucketPlanner {
 public:
  explicit CostModelPlanner(std::size_t max_bucket_bytes) : max_bucket_bytes_(max_bucket_bytes) {}
  BucketPlan Plan(const std::vector<PlanTensor>& tensors, const LinkModel& link) const override;

 private:
  std::size_t max_bucket_bytes_;
};

// Fills buckets up to a threshold, as other libraries do; 0 bytes means one tensor per bucket.
class ThresholdPlanner final : public BucketPlanner {
 public:
  explicit ThresholdPlanner(std::size_t threshold_bytes) : threshold_bytes_(threshold_bytes) {}
  BucketPlan Plan(const std::vector<PlanTensor>& tensors, const LinkModel& link) const override;

 private:
  std::size_t threshold_bytes_;
};

// When a bucket is full, starts and ends, since the start of the step, if each starts as soon as it
// is full and the link is free.
struct BucketTimes {
  std::chrono::nanoseconds ready{0};
  std::chrono::nanoseconds start{0};
  std::chrono::nanoseconds end{0};
};
// In the order of `plan`.
std::vector<BucketTimes> PredictBuckets(const std::vector<PlanTensor>& tensors,
                                        const BucketPlan& plan, const LinkModel& link);

// When the last of them is done.
std::chrono::nanoseconds PredictStepTime(const std::vector<PlanTensor>& tensors,
                                         const BucketPlan& plan, const LinkModel& link);

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_PLANNING_BUCKET_PLANNER_H_
