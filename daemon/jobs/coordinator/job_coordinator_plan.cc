// JobCoordinator's dealings with plans: from where it begins, what it tells, what it keeps.
#include <algorithm>
#include <utility>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/plans/plan_description.h"

namespace ringd {
namespace {

constexpr std::chrono::nanoseconds kBetweenTellings = std::chrono::milliseconds(500);

// False for one that was made when buckets could be larger.
bool Fits(const KeptPlan& plan, std::size_t most_bytes) {
  return std::all_of(plan.buckets.begin(), plan.buckets.end(), [&](const KeptBucket& bucket) {
    std::size_t bytes = 0;
    for (const KeptTensor& tensor : bucket) bytes += ByteCount(tensor.meta);
    return bucket.size() == 1 || bytes <= most_bytes;
  });
}

}  // namespace

void JobCoordinator::StartSchedule(Membership& membership) {
  CoordinatorConfig config;
  for (const MemberNode& node : membership.nodes) config.node_names.push_back(node.name);
  static_assert(CoordinatorConfig{}.max_buckets < kMaxInFlightOperations);
  const std::size_t most = options_.fusion_threshold_bytes;
  config.learn = options_.learn;
  config.fusion_threshold_bytes = options_.fusion.NegotiatedThreshold(most);
  config.link = options_.link;
  config.link.node_count = membership.node_count();
  LinkSource source = LinkSource::kAssumed;
  if (options_.plans != nullptr && membership.node_count() > 1) {
    nodes_key_ = NodesKey(options_.uid, membership);
    for (std::shared_ptr<const KeptPlan>& plan : options_.plans->Find(nodes_key_)) {
      if (plan->link_measured && source == LinkSource::kAssumed) {
        source = LinkSource::kKept;
        config.link.latency = plan->latency;
        config.link.bytes_per_second = plan->bytes_per_second;
      }
      if (options_.fusion.IsPlanned() && Fits(*plan, most)) {
        config.kept_plans.push_back(std::move(plan));
      }
    }
  }
  AlgorithmOptions& algorithms = membership.algorithms;
  // Between two nodes doubling sends no more than the ring, whatever the link is.
  const bool is_known = source != LinkSource::kAssumed || membership.node_count() == 2;
  if (options_.choose_small_all_reduces && is_known) {
    algorithms.small_all_reduce_bytes = SmallBytesOf(config.link, algorithms.chunk_bytes);
  }
  config.link.small_bytes =
      std::min<std::size_t>(algorithms.small_all_reduce_bytes, algorithms.chunk_bytes);
  config.link.flat_bytes = algorithms.flat_all_reduce_bytes;
  PlanTuner::Options tuning;
  tuning.may_replan = options_.fusion.MayReplan();
  tuner_ = std::make_unique<PlanTuner>(tuning, config.link, source, config.node_names.size());
  schedule_ = std::make_unique<Coordinator>(config, options_.fusion.MakePlanner(most));
  plan_untold_ = membership.node_count() > 1;
}

// Only people look at it, so it may be a little late, and plans that change often are not all told.
void JobCoordinator::TellPlan(Clock::time_point now) {
  plan_untold_ = false;
  next_telling_ = now + kBetweenTellings;
  v1::CoordinatorMessage message;
  *message.mutable_plan() = DescribePlan(schedule_->Status(), *tuner_, options_.fusion);
  if (LinkModel::MayBeFlat(tuner_->link().node_count)) {
    DescribeFlat(options_.choose_flat_all_reduces, tried_, *message.mutable_plan()->mutable_link());
  }
  Broadcast(message);
}

// Fixed buckets need nobody to remember them.
void JobCoordinator::KeepPlan() {
  if (state_ != State::kRunning || nodes_key_.empty() || !options_.fusion.IsPlanned()) return;
  KeptPlan plan = schedule_->Learned();
  if (plan.buckets.empty()) return;
  plan.link_measured = tuner_->source() != LinkSource::kAssumed;
  plan.latency = tuner_->link().latency;
  plan.bytes_per_second = tuner_->link().bytes_per_second;
  options_.plans->Put(nodes_key_, std::move(plan));
}

}  // namespace ringd
