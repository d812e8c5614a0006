// The inside of a Coordinator, for its two source files only: coordinator.cc holds the protocol,
// coordinator_plans.cc what is planned and when.
#ifndef RINGD_DAEMON_SCHEDULE_COORDINATOR_COORDINATOR_IMPL_H_
#define RINGD_DAEMON_SCHEDULE_COORDINATOR_COORDINATOR_IMPL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/schedule/coordinator/channel_table.h"
#include "daemon/schedule/coordinator/coordinator.h"
#include "daemon/schedule/coordinator/operation_batch.h"
#include "daemon/schedule/planning/period_learner.h"

namespace ringd {

class Coordinator::Impl {
 public:
  Impl(CoordinatorConfig config, std::unique_ptr<const BucketPlanner> planner);

  absl::Status OnMessage(NodeIndex from, const NodeMessage& message, TimePoint now);
  void Flush(std::vector<CoordinatorMessage>& broadcasts);
  void SetLinkModel(const LinkModel& link);
  void SetReadiness(const std::unordered_map<std::string, std::chrono::nanoseconds>& offsets);
  void Replan();
  bool ReplanIfBetter(const LeastGain& least);
  std::vector<StalledTensor> Stalled(TimePoint announced_before) const {
    return negotiation_.Stalled(announced_before);
  }
  CoordinatorStatus Status() const;
  KeptPlan Learned() const;

 private:
  std::size_t NodeCount() const { return config_.node_names.size(); }
  std::size_t FreeBuckets() const {
    return config_.max_buckets - std::min(config_.max_buckets, channels_.channels().size());
  }

  absl::Status Handle(NodeIndex from, const Ready& ready, TimePoint now);
  absl::Status Handle(NodeIndex from, const Break& request, TimePoint now);
  absl::Status Handle(NodeIndex from, const Frozen& frozen, TimePoint now);
  absl::Status Handle(NodeIndex from, const Filled& filled, TimePoint now);

  // Whether an announcement made in `epoch` counts; an error if the node should have known better.
  absl::StatusOr<bool> IsCurrent(const std::string& name, Epoch epoch) const;
  bool LearnsNow(const std::string& announced);
  std::vector<PlannedBucket> RecallPlan();
  void OnAgreed(const std::string& name, const NegotiationTable::Result& result, TimePoint now);

  void Broadcast(CoordinatorMessage message);
  void SendBatch();
  void SendSchedule(std::vector<PlannedBucket> buckets);
  void RetireAll();
  void BeginRetirement(Retirement retirement);
  void Finish(const Retirement& retirement);
  Channel RetireChannel(std::uint32_t number, BreakReason reason);
  void Reschedule(const Retirement& retirement, Channel channel);
  std::vector<PlannedBucket> LivePlan() const;

  const CoordinatorConfig config_;
  NegotiationTable negotiation_;
  OperationBatch batch_;
  PeriodLearner learner_;
  SchedulePlanner planner_;
  ChannelTable channels_;
  // Of earlier jobs, until one of them is seen to be this job's; then the buckets of that one which
  // have not been confirmed yet.
  std::vector<std::shared_ptr<const KeptPlan>> kept_plans_;
  std::vector<KeptBucket> kept_buckets_;
  // A job that is like none of them so long is another one; looking through all of them takes time.
  static constexpr int kPeriodsToRecall = 64;
  int periods_unlike_kept_ = 0;
  // How often a plan that a step's middle has cut in two may still be made anew.
  int rejoins_left_ = 0;
  // For each tensor in a channel, the epoch of its schedule. A node that announces it in an earlier
  // one did not know yet; that announcement is void.
  std::unordered_map<std::string, Epoch> scheduled_since_;

  std::uint32_t next_sequence_ = 0;
  std::vector<CoordinatorMessage> outgoing_;
  CoordinatorStatus counters_;  // without what Status() computes
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_COORDINATOR_COORDINATOR_IMPL_H_
