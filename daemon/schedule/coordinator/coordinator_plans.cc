// What a Coordinator plans, when it plans anew, and what it tells about its plans.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "daemon/schedule/coordinator/coordinator_impl.h"

namespace ringd {
namespace {

using std::chrono::nanoseconds;

// A plan that was made in the middle of a step is cut in two there. Planning anew mends that if it
// comes between two steps; in a job that never pauses it may not, and then there is an end to
// trying.
constexpr int kRejoins = 3;

LinkModel ForNodes(LinkModel link, std::size_t node_count) {
  link.node_count = static_cast<int>(node_count);
  return link;
}

std::vector<LearnedTensor> TensorsOf(const std::vector<PlannedBucket>& plan) {
  std::vector<LearnedTensor> tensors;
  for (const PlannedBucket& bucket : plan) {
    tensors.insert(tensors.end(), bucket.tensors.begin(), bucket.tensors.end());
  }
  return tensors;
}

bool CanShareBucket(const std::vector<LearnedTensor>& tensors) {
  return std::all_of(tensors.begin() + 1, tensors.end(), [&](const LearnedTensor& tensor) {
    return CanFuse(tensor.meta, tensors.front().meta);
  });
}

std::vector<std::string> Names(const KeptBucket& bucket) {
  std::vector<std::string> names;
  for (const KeptTensor& tensor : bucket) names.push_back(tensor.name);
  return names;
}

}  // namespace

Coordinator::Impl::Impl(CoordinatorConfig config, std::unique_ptr<const BucketPlanner> planner)
    : config_(std::move(config)),
      negotiation_(config_.node_names, config_.ordered),
      batch_(config_.fusion_threshold_bytes),
      learner_(config_.periods_to_learn),
      planner_(std::move(planner),
               std::make_unique<ThresholdPlanner>(config_.launched_bucket_bytes),
               ForNodes(config_.link, NodeCount())),
      channels_(NodeCount()),
      kept_plans_(config_.kept_plans) {}

void Coordinator::Impl::SetLinkModel(const LinkModel& link) {
  planner_.SetLink(ForNodes(link, NodeCount()));
}

void Coordinator::Impl::SetReadiness(
    const std::unordered_map<std::string, std::chrono::nanoseconds>& offsets) {
  channels_.SetReadiness(offsets);
}

// ---- learning ---------------------------------------------------------------------------------

// At the end of a period: schedules what is stable. True if the announced tensor is scheduled by
// that, and so its announcement void.
bool Coordinator::Impl::LearnsNow(const std::string& announced) {
  if (!config_.learn || !learner_.OnAnnounced(announced)) return false;
  std::vector<PlannedBucket> plan = RecallPlan();
  if (!plan.empty()) {
    counters_.origin = PlanOrigin::kKept;
  } else {
    std::vector<LearnedTensor> stable = learner_.TakeStable();
    if (stable.empty()) return false;
    plan = planner_.Plan(std::move(stable), FreeBuckets());
    if (counters_.origin == PlanOrigin::kNone) counters_.origin = PlanOrigin::kLearned;
  }
  if (counters_.first_origin == PlanOrigin::kNone) counters_.first_origin = counters_.origin;
  // Operations first: the schedule takes over its tensors from their next occurrence on.
  SendBatch();
  SendSchedule(std::move(plan));
  return scheduled_since_.count(announced) != 0;
}

// The buckets of an earlier job's plan whose tensors were all executed in the period that ends,
// with the same descriptions.
std::vector<PlannedBucket> Coordinator::Impl::RecallPlan() {
  if (kept_buckets_.empty()) {
    // The plan of which most is confirmed is this job's.
    std::size_t most = 0;
    std::shared_ptr<const KeptPlan> chosen;
    for (const std::shared_ptr<const KeptPlan>& plan : kept_plans_) {
      std::size_t bytes = 0;
      for (const KeptBucket& bucket : plan->buckets) {
        if (!learner_.IsConfirmed(bucket)) continue;
        for (const KeptTensor& tensor : bucket) bytes += ByteCount(tensor.meta);
      }
      if (bytes > most) {
        most = bytes;
        chosen = plan;
      }
    }
    if (chosen == nullptr) {
      if (++periods_unlike_kept_ >= kPeriodsToRecall) kept_plans_.clear();
      return {};
    }
    kept_plans_.clear();
    kept_buckets_ = chosen->buckets;
  }
  std::vector<PlannedBucket> plan;
  std::vector<std::vector<std::string>> confirmed;
  std::vector<KeptBucket> missing;
  for (KeptBucket& bucket : kept_buckets_) {
    if (plan.size() >= FreeBuckets() || !learner_.IsConfirmed(bucket)) {
      missing.push_back(std::move(bucket));
      continue;
    }
    plan.push_back(SchedulePlanner::AsOneBucket(learner_.TakeKept(bucket)));
    confirmed.push_back(Names(bucket));
  }
  kept_buckets_ = std::move(missing);
  if (!plan.empty()) learner_.EndTake();
  // A file may say anything: what can't travel together is planned from what it says of the
  // tensors.
  const bool sound = std::all_of(plan.begin(), plan.end(), [](const PlannedBucket& bucket) {
    return CanShareBucket(bucket.tensors);
  });
  return sound ? plan : planner_.Plan(TensorsOf(plan), FreeBuckets());
}

KeptPlan Coordinator::Impl::Learned() const {
  KeptPlan plan;
  for (const PlannedBucket& live : LivePlan()) {
    KeptBucket& bucket = plan.buckets.emplace_back();
    for (const LearnedTensor& tensor : live.tensors) {
      bucket.push_back({tensor.name, tensor.meta, tensor.ready_offset, tensor.follows_wait});
    }
  }
  return plan;
}

// ---- planning anew ----------------------------------------------------------------------------

std::vector<PlannedBucket> Coordinator::Impl::LivePlan() const {
  std::vector<PlannedBucket> plan;
  for (const auto& [number, channel] : channels_.channels()) {
    if (!channel.freezing) plan.push_back({channel.tensors, channel.expected_fill});
  }
  return plan;
}

void Coordinator::Impl::Replan() {
  rejoins_left_ = kRejoins;
  RetireAll();
}

void Coordinator::Impl::RetireAll() {
  Retirement retirement;
  retirement.reason = BreakReason::kReplan;
  retirement.channels = channels_.LiveChannels();
  if (retirement.channels.empty()) return;
  counters_.origin = PlanOrigin::kReplanned;
  ++counters_.replans;
  BeginRetirement(std::move(retirement));
}

bool Coordinator::Impl::ReplanIfBetter(const LeastGain& least) {
  std::vector<PlannedBucket> live = LivePlan();
  // One change at a time: what is being frozen will be planned, or negotiated, soon.
  if (live.size() != channels_.channels().size()) return false;
  // The others don't take the link.
  std::erase_if(
      live, [](const PlannedBucket& bucket) { return NeedsLaunch(bucket.tensors.front().meta); });
  if (live.empty()) return false;
  std::vector<LearnedTensor> tensors = TensorsOf(live);
  nanoseconds compute{0};
  for (const LearnedTensor& tensor : tensors) compute = std::max(compute, tensor.ready_offset);
  const nanoseconds now = planner_.StepTime(live);
  const auto exposed = static_cast<double>((now - compute).count());
  const auto share = nanoseconds(static_cast<std::int64_t>(exposed * least.share));
  const nanoseconds least_gain = std::max(least.time, std::min(share, least.enough));
  const auto is_better = [&](const std::vector<LearnedTensor>& planned) {
    const std::vector<PlannedBucket> plan = planner_.Plan(planned, config_.max_buckets);
    const nanoseconds then = planner_.StepTime(plan);
    if (then + least_gain <= now) return true;
    // What takes hardly longer with far fewer operations leaves the processors to the trainers.
    return then <= now + planner_.link().operation_overhead && 2 * plan.size() <= live.size();
  };
  if (is_better(tensors)) {
    Replan();
    return true;
  }
  // Those that were executed differently often were kept apart.
  const bool all_alike = std::all_of(
      tensors.begin(), tensors.end(),
      [&](const LearnedTensor& tensor) { return tensor.executed == tensors.front().executed; });
  if (rejoins_left_ == 0 || all_alike) return false;
  for (LearnedTensor& tensor : tensors) tensor.executed = 0;
  if (!is_better(tensors)) return false;
  --rejoins_left_;
  RetireAll();
  return true;
}

// ---- reports ----------------------------------------------------------------------------------

CoordinatorStatus Coordinator::Impl::Status() const {
  CoordinatorStatus status = counters_;
  std::vector<PlannedBucket> plan;
  for (const auto& [number, channel] : channels_.channels()) {
    CoordinatorBucketStatus bucket;
    bucket.channel = number;
    bucket.freezing = channel.freezing;
    for (const LearnedTensor& tensor : channel.tensors) {
      bucket.bytes += ByteCount(tensor.meta);
      bucket.tensors.push_back(tensor.name);
    }
    status.tensors_scheduled += channel.tensors.size();
    plan.push_back({channel.tensors, channel.expected_fill});
    status.buckets.push_back(std::move(bucket));
  }
  const std::vector<BucketTimes> times = planner_.Predict(plan);
  for (std::size_t i = 0; i < times.size(); ++i) {
    status.buckets[i].predicted = times[i];
  }
  status.plan = planner_.Compare(plan);
  status.link = planner_.link();
  return status;
}

}  // namespace ringd
