#include "daemon/schedule/coordinator/coordinator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/schedule/coordinator/coordinator_impl.h"

namespace ringd {
namespace {

using std::chrono::nanoseconds;

// The least fill time expected of a bucket that was found slow, not broken.
constexpr nanoseconds kMinPatientFill = std::chrono::milliseconds(20);

}  // namespace

// ---- what nodes say ---------------------------------------------------------------------------

absl::Status Coordinator::Impl::OnMessage(NodeIndex from, const NodeMessage& message,
                                          TimePoint now) {
  if (from.value() < 0 || static_cast<std::size_t>(from.value()) >= NodeCount()) {
    return absl::InternalError(absl::StrCat("message from unknown node ", from.value()));
  }
  ++counters_.messages_received;
  return std::visit([&](const auto& typed) { return Handle(from, typed, now); }, message);
}

absl::Status Coordinator::Impl::Handle(NodeIndex from, const Ready& ready, TimePoint now) {
  for (const ReadyTensor& tensor : ready.tensors) {
    const absl::StatusOr<bool> current = IsCurrent(tensor.name, ready.epoch);
    if (!current.ok()) return current.status();
    if (!*current || LearnsNow(tensor.name)) continue;
    absl::StatusOr<NegotiationTable::Result> result = negotiation_.Announce(from, tensor, now);
    if (!result.ok()) return result.status();
    if (result->outcome == NegotiationTable::Outcome::kIncomplete) continue;
    if (result->outcome == NegotiationTable::Outcome::kAgreed) {
      OnAgreed(tensor.name, *result, now);
    } else {
      ++counters_.tensors_failed;
      Broadcast(FailTensor{tensor.name, std::move(result->error)});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Coordinator::Impl::IsCurrent(const std::string& name, Epoch epoch) const {
  if (epoch > counters_.epoch) {
    return absl::InternalError(
        absl::StrCat("announcement of epoch ", epoch, " in epoch ", counters_.epoch));
  }
  const auto scheduled = scheduled_since_.find(name);
  if (scheduled == scheduled_since_.end()) return true;
  if (epoch < scheduled->second) return false;
  return absl::InternalError(
      absl::StrCat("tensor '", name, "' was announced although it is scheduled"));
}

void Coordinator::Impl::OnAgreed(const std::string& name, const NegotiationTable::Result& result,
                                 TimePoint now) {
  batch_.Add(name, result.meta, result.follows_wait);
  if (!config_.learn) return;
  if (!learner_.OnExecuted(name, result.meta, result.follows_wait, now)) return;
  ++counters_.periods;
}

absl::Status Coordinator::Impl::Handle(NodeIndex from, const Break& request, TimePoint /*now*/) {
  if (!channels_.WasUsed(request.channel)) {
    return absl::InternalError(absl::StrCat("node ", from.value(), " breaks channel ",
                                            request.channel, ", which does not exist"));
  }
  // Another node may have asked already. What this one has to say is not lost: if it still holds
  // for the buckets that follow, the node will ask again.
  const Channel* channel = channels_.Find(request.channel);
  if (channel == nullptr || channel->freezing) return absl::OkStatus();
  Retirement retirement;
  retirement.reason = request.reason;
  retirement.channels = {request.channel};
  retirement.asked_by = from;
  retirement.asked_after = request.started;
  retirement.named.insert(request.tensors.begin(), request.tensors.end());
  BeginRetirement(std::move(retirement));
  return absl::OkStatus();
}

absl::Status Coordinator::Impl::Handle(NodeIndex from, const Frozen& frozen, TimePoint /*now*/) {
  return channels_.NoteFrozen(from, frozen);
}

absl::Status Coordinator::Impl::Handle(NodeIndex from, const Filled& filled, TimePoint /*now*/) {
  const absl::StatusOr<bool> all = channels_.NoteFilled(from, filled);
  if (!all.ok()) return all.status();
  if (!*all) return absl::OkStatus();
  ++counters_.operations_launched;
  Broadcast(Launch{filled.channel, filled.occurrence});
  return absl::OkStatus();
}

// ---- what nodes are told ----------------------------------------------------------------------

void Coordinator::Impl::Broadcast(CoordinatorMessage message) {
  counters_.messages_sent += NodeCount();
  outgoing_.push_back(std::move(message));
}

void Coordinator::Impl::Flush(std::vector<CoordinatorMessage>& broadcasts) {
  SendBatch();
  for (const Retirement& retirement : channels_.TakeFinishedRetirements()) Finish(retirement);
  broadcasts.insert(broadcasts.end(), std::make_move_iterator(outgoing_.begin()),
                    std::make_move_iterator(outgoing_.end()));
  outgoing_.clear();
}

void Coordinator::Impl::SendBatch() {
  for (std::vector<std::string>& names : batch_.Take()) {
    ++counters_.operations_negotiated;
    Broadcast(Execute{next_sequence_++, std::move(names)});
  }
}

void Coordinator::Impl::SendSchedule(std::vector<PlannedBucket> buckets) {
  if (buckets.empty()) return;
  Schedule schedule{++counters_.epoch, {}};
  for (PlannedBucket& bucket : buckets) {
    const Channel& channel = channels_.Add(std::move(bucket.tensors), bucket.expected_fill);
    ScheduledBucket& scheduled = schedule.buckets.emplace_back();
    scheduled.channel = channel.number;
    scheduled.expected_fill = channel.expected_fill;
    for (const LearnedTensor& tensor : channel.tensors) {
      scheduled.tensors.push_back({tensor.name, tensor.meta});
      scheduled_since_[tensor.name] = schedule.epoch;
      negotiation_.Drop(tensor.name);
    }
  }
  ++counters_.schedules_sent;
  Broadcast(std::move(schedule));
}

void Coordinator::Impl::BeginRetirement(Retirement retirement) {
  for (std::uint32_t number : retirement.channels) Broadcast(Freeze{number});
  channels_.BeginRetirement(std::move(retirement));
}

void Coordinator::Impl::Finish(const Retirement& retirement) {
  std::vector<LearnedTensor> tensors;
  for (std::uint32_t number : retirement.channels) {
    Channel channel = RetireChannel(number, retirement.reason);
    switch (retirement.reason) {
      case BreakReason::kMeta:
        // Others of the bucket probably changed as well: all have to prove stable again.
        for (const std::string& name : retirement.named) learner_.Penalise(name);
        break;
      case BreakReason::kWithdrawn:
        for (const std::string& name : retirement.named) {
          learner_.Forget(name);
          planner_.Forget(name);
        }
        break;
      case BreakReason::kBlocked:
      case BreakReason::kLate:
        Reschedule(retirement, std::move(channel));
        break;
      case BreakReason::kReplan:
        tensors.insert(tensors.end(), std::make_move_iterator(channel.tensors.begin()),
                       std::make_move_iterator(channel.tensors.end()));
        break;
    }
  }
  if (retirement.reason == BreakReason::kReplan) {
    planner_.ForgetGuesses();
    SendSchedule(planner_.Plan(std::move(tensors), FreeBuckets()));
  }
}

// Ends a channel that all nodes have frozen and takes it out of the table.
Channel Coordinator::Impl::RetireChannel(std::uint32_t number, BreakReason reason) {
  Channel channel = channels_.Remove(number);
  const std::uint32_t final_count =
      *std::min_element(channel.started.begin(), channel.started.end());
  Broadcast(Retire{++counters_.epoch, number, final_count});
  ++counters_.breaks[static_cast<int>(reason)];
  // Each node sent its announcements of before the schedule ahead of its Frozen: none is left.
  for (LearnedTensor& tensor : channel.tensors) {
    tensor.executed += final_count;
    scheduled_since_.erase(tensor.name);
  }
  return channel;
}

// Some tensors of the bucket came and others did not. The two sets become buckets of their own at
// once, without being observed anew: a bucket that does not come in a step is no departure.
void Coordinator::Impl::Reschedule(const Retirement& retirement, Channel channel) {
  const auto asked_by = static_cast<std::size_t>(retirement.asked_by.value());
  std::vector<PlannedBucket> buckets;
  const std::vector<std::uint32_t>& came =
      channel.needs_launch() ? channel.filled : channel.started;
  if (came[asked_by] > retirement.asked_after) {
    // The others came after all, only later than expected.
    PlannedBucket& bucket = buckets.emplace_back();
    bucket.tensors = std::move(channel.tensors);
    bucket.expected_fill = 2 * std::max(channel.expected_fill, kMinPatientFill);
    SendSchedule(std::move(buckets));
    return;
  }
  std::vector<LearnedTensor> present;
  std::vector<LearnedTensor> missing;
  for (LearnedTensor& tensor : channel.tensors) {
    (retirement.named.count(tensor.name) != 0 ? missing : present).push_back(std::move(tensor));
  }
  // A node that names all or none of the tensors breaks no rule that matters: negotiate them.
  if (present.empty() || missing.empty()) return;
  planner_.Separate(retirement.named, retirement.reason == BreakReason::kLate);
  buckets.push_back(SchedulePlanner::AsOneBucket(std::move(present)));
  if (FreeBuckets() > 1) buckets.push_back(SchedulePlanner::AsOneBucket(std::move(missing)));
  SendSchedule(std::move(buckets));
}

// ---- the public face --------------------------------------------------------------------------

Coordinator::Coordinator(CoordinatorConfig config, std::unique_ptr<const BucketPlanner> planner)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(planner))) {}
Coordinator::~Coordinator() = default;

absl::Status Coordinator::OnMessage(NodeIndex from, const NodeMessage& message, TimePoint now) {
  return impl_->OnMessage(from, message, now);
}
void Coordinator::Flush(TimePoint /*now*/, std::vector<CoordinatorMessage>& broadcasts) {
  impl_->Flush(broadcasts);
}
void Coordinator::SetLinkModel(const LinkModel& link) { impl_->SetLinkModel(link); }
void Coordinator::SetReadiness(
    const std::unordered_map<std::string, std::chrono::nanoseconds>& offsets) {
  impl_->SetReadiness(offsets);
}
void Coordinator::Replan() { impl_->Replan(); }
bool Coordinator::ReplanIfBetter(const LeastGain& least) { return impl_->ReplanIfBetter(least); }
std::vector<StalledTensor> Coordinator::Stalled(TimePoint announced_before) const {
  return impl_->Stalled(announced_before);
}
CoordinatorStatus Coordinator::Status() const { return impl_->Status(); }
KeptPlan Coordinator::Learned() const { return impl_->Learned(); }

}  // namespace ringd
