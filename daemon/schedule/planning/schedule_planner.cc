#include "daemon/schedule/planning/schedule_planner.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ringd {
namespace {

using std::chrono::nanoseconds;

// How often, and from where, a plan of too many buckets is made coarser; ends at half a minute.
constexpr int kMaxCoarser = 15;
constexpr nanoseconds kLeastOverhead = std::chrono::microseconds(1);

void SortByReadiness(std::vector<LearnedTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const LearnedTensor& a, const LearnedTensor& b) {
                     return a.ready_offset < b.ready_offset;
                   });
}

// The buckets' tensors in one list, and the buckets as positions in it.
BucketPlan Positions(const std::vector<PlannedBucket>& buckets,
                     std::vector<LearnedTensor>& tensors) {
  BucketPlan plan;
  for (const PlannedBucket& bucket : buckets) {
    std::vector<std::size_t>& positions = plan.emplace_back();
    for (const LearnedTensor& tensor : bucket.tensors) {
      positions.push_back(tensors.size());
      tensors.push_back(tensor);
    }
  }
  return plan;
}

}  // namespace

SchedulePlanner::SchedulePlanner(std::unique_ptr<const BucketPlanner> planner,
                                 std::unique_ptr<const BucketPlanner> launched,
                                 const LinkModel& link)
    : planner_(std::move(planner)), launched_planner_(std::move(launched)), link_(link) {}

// The classes are planned one by one, so each planner may see all tensors: of its buckets those
// count that are its own.
BucketPlan SchedulePlanner::PlanPositions(const std::vector<LearnedTensor>& tensors,
                                          const LinkModel& link) const {
  std::vector<PlanTensor> described = Describe(tensors);
  const auto is_launched = [&](std::size_t position) {
    return NeedsLaunch(tensors[position].meta);
  };
  BucketPlan plan = planner_->Plan(described, link);
  std::erase_if(plan, [&](const auto& bucket) { return is_launched(bucket.front()); });
  for (std::size_t i = 0; i < tensors.size(); ++i) described[i].bytes = ByteCount(tensors[i].meta);
  for (std::vector<std::size_t>& bucket : launched_planner_->Plan(described, link)) {
    if (is_launched(bucket.front())) plan.push_back(std::move(bucket));
  }
  // Each by when it is ready, as the tensors are.
  std::stable_sort(plan.begin(), plan.end(),
                   [](const auto& a, const auto& b) { return a.back() < b.back(); });
  return plan;
}

std::vector<PlannedBucket> SchedulePlanner::Plan(std::vector<LearnedTensor> tensors,
                                                 std::size_t max_buckets) const {
  std::vector<PlannedBucket> buckets;
  if (max_buckets == 0) return buckets;
  SortByReadiness(tensors);
  LinkModel link = link_;
  BucketPlan plan = PlanPositions(tensors, link);
  // The more an operation seems to cost, the fewer a planner makes.
  for (int i = 0; i < kMaxCoarser && plan.size() > max_buckets; ++i) {
    link.operation_overhead = 2 * std::max(link.operation_overhead, kLeastOverhead);
    plan = PlanPositions(tensors, link);
  }
  if (plan.size() > max_buckets) plan.resize(max_buckets);
  for (const std::vector<std::size_t>& positions : plan) {
    std::vector<LearnedTensor> members;
    members.reserve(positions.size());
    for (std::size_t position : positions) members.push_back(tensors[position]);
    buckets.push_back(AsOneBucket(std::move(members)));
  }
  return buckets;
}

PlannedBucket SchedulePlanner::AsOneBucket(std::vector<LearnedTensor> tensors) {
  nanoseconds first = nanoseconds::max();
  nanoseconds last{0};
  for (const LearnedTensor& tensor : tensors) {
    first = std::min(first, tensor.ready_offset);
    last = std::max(last, tensor.ready_offset);
  }
  return {std::move(tensors), std::max(last - first, nanoseconds(0))};
}

std::vector<PlanTensor> SchedulePlanner::Describe(const std::vector<LearnedTensor>& tensors) const {
  // All that decides who may join whom; the planner sees a number for each mixture.
  using Key = std::tuple<CollectiveKind, DataType, ReduceOp, TensorPlace, std::uint32_t,
                         std::uint64_t, std::uint64_t>;
  std::map<Key, std::uint32_t> classes;
  std::uint32_t alone = 0;
  std::vector<PlanTensor> described;
  described.reserve(tensors.size());
  for (const LearnedTensor& tensor : tensors) {
    const auto group = group_.find(tensor.name);
    const Key key{tensor.meta.kind,
                  tensor.meta.dtype,
                  tensor.meta.op,
                  tensor.meta.place,
                  group == group_.end() ? 0 : group->second.number,
                  tensor.learned_with,
                  tensor.executed};
    // What can't be fused even with its like has a number of its own.
    const auto next = static_cast<std::uint32_t>(classes.size()) + alone;
    const bool can_fuse = CanFuse(tensor.meta, tensor.meta);
    const std::uint32_t fusion_class =
        can_fuse ? classes.try_emplace(key, next).first->second : next;
    if (!can_fuse) ++alone;
    const std::size_t line_bytes = NeedsLaunch(tensor.meta) ? 0 : ByteCount(tensor.meta);
    described.push_back({line_bytes, tensor.ready_offset, fusion_class, tensor.follows_wait});
  }
  return described;
}

void SchedulePlanner::Separate(const std::set<std::string>& names, bool is_guess) {
  const Group group{next_group_++, is_guess};
  for (const std::string& name : names) group_[name] = group;
}

void SchedulePlanner::ForgetGuesses() {
  for (auto it = group_.begin(); it != group_.end();) {
    it = it->second.is_guess ? group_.erase(it) : std::next(it);
  }
}

std::vector<BucketTimes> SchedulePlanner::Predict(const std::vector<PlannedBucket>& buckets) const {
  std::vector<LearnedTensor> tensors;
  const BucketPlan plan = Positions(buckets, tensors);
  return PredictBuckets(Describe(tensors), plan, link_);
}

nanoseconds SchedulePlanner::StepTime(const std::vector<PlannedBucket>& buckets) const {
  std::vector<LearnedTensor> tensors;
  const BucketPlan plan = Positions(buckets, tensors);
  return PredictStepTime(Describe(tensors), plan, link_);
}

PlanComparison SchedulePlanner::Compare(const std::vector<PlannedBucket>& buckets) const {
  std::vector<LearnedTensor> tensors;
  const BucketPlan plan = Positions(buckets, tensors);
  const std::vector<PlanTensor> unsorted = Describe(tensors);
  SortByReadiness(tensors);
  const std::vector<PlanTensor> sorted = Describe(tensors);

  PlanComparison comparison;
  comparison.tensors = tensors.size();
  for (const LearnedTensor& tensor : tensors) comparison.bytes += ByteCount(tensor.meta);
  for (const PlanTensor& tensor : sorted) {
    comparison.compute = std::max(comparison.compute, tensor.ready);
  }
  constexpr std::size_t k64MiB = std::size_t{64} << 20;
  comparison.learned = PredictStepTime(unsorted, plan, link_);
  comparison.fixed_64mib =
      PredictStepTime(sorted, ThresholdPlanner(k64MiB).Plan(sorted, link_), link_);
  comparison.per_tensor = PredictStepTime(sorted, ThresholdPlanner(0).Plan(sorted, link_), link_);
  return comparison;
}

}  // namespace ringd
