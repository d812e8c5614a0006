// How a NodeScheduler follows its coordinator.
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/schedule/node/node_bucket.h"
#include "daemon/schedule/node/node_scheduler.h"
#include "daemon/schedule/node/tensor_table.h"

namespace ringd {

absl::Status NodeScheduler::OnMessage(const CoordinatorMessage& message, TimePoint now) {
  ++counters_.messages_received;
  return std::visit([&](const auto& typed) { return Handle(typed, now); }, message);
}

absl::Status NodeScheduler::OnInquiry(absl::string_view /*name*/) {
  return absl::InternalError("the coordinator asks for operations that are not matched by order");
}

absl::Status NodeScheduler::Handle(const Execute& execute, TimePoint now) {
  if (execute.sequence != next_negotiated_ || execute.tensors.empty()) {
    return absl::InternalError(absl::StrCat("coordinator sent operation ", execute.sequence,
                                            ", expected ", next_negotiated_));
  }
  std::vector<TensorHandle> handles;
  handles.reserve(execute.tensors.size());
  for (const std::string& name : execute.tensors) {
    TensorHandle handle;
    if (!tensors_.Find(name, handle) || tensors_[handle].state != TensorState::kAnnounced ||
        !tensors_[handle].announced || !tensors_[handle].reports.empty()) {
      return absl::InternalError(
          absl::StrCat("coordinator starts tensor '", name, "', which is not announced here"));
    }
    tensors_[handle].announced = false;  // so that naming it twice is an error
    handles.push_back(handle);
  }
  Start({0, next_negotiated_++},
        std::make_shared<const std::vector<TensorHandle>>(std::move(handles)));
  LetGo(now, false);
  return absl::OkStatus();
}

absl::Status NodeScheduler::Handle(const FailTensor& fail, TimePoint now) {
  TensorHandle handle;
  if (!tensors_.Find(fail.tensor, handle) || tensors_[handle].state != TensorState::kAnnounced ||
      !tensors_[handle].announced) {
    return absl::InternalError(
        absl::StrCat("coordinator fails tensor '", fail.tensor, "', which is not announced here"));
  }
  FailTensorNow(handle, fail.error);
  LetGo(now, false);
  return absl::OkStatus();
}

absl::Status NodeScheduler::AdvanceEpoch(Epoch epoch) {
  if (epoch != counters_.epoch + 1) {
    return absl::InternalError(
        absl::StrCat("coordinator went from epoch ", counters_.epoch, " to ", epoch));
  }
  counters_.epoch = epoch;
  return absl::OkStatus();
}

absl::Status NodeScheduler::Handle(const Schedule& schedule, TimePoint now) {
  absl::Status status = AdvanceEpoch(schedule.epoch);
  for (const ScheduledBucket& scheduled : schedule.buckets) {
    if (status.ok()) status = AddBucket(scheduled, now);
  }
  return status;
}

absl::Status NodeScheduler::AddBucket(const ScheduledBucket& scheduled, TimePoint now) {
  if (scheduled.channel == 0 || scheduled.tensors.empty() ||
      buckets_.count(scheduled.channel) != 0) {
    return absl::InternalError(
        absl::StrCat("coordinator schedules channel ", scheduled.channel, " wrongly"));
  }
  std::vector<TensorHandle> handles;
  handles.reserve(scheduled.tensors.size());
  for (const ScheduledTensor& tensor : scheduled.tensors) {
    handles.push_back(tensors_.Insert(tensor.name));
  }
  for (const ScheduledTensor& tensor : scheduled.tensors) {
    if (NeedsLaunch(tensor.meta) != NeedsLaunch(scheduled.tensors.front().meta)) {
      return absl::InternalError(absl::StrCat("coordinator puts tensor '", tensor.name,
                                              "' and one that is not on GPUs ",
                                              "alike into channel ", scheduled.channel));
    }
  }
  auto owned = std::make_unique<NodeBucket>(scheduled, handles);
  NodeBucket& bucket = *owned;
  buckets_.emplace(scheduled.channel, std::move(owned));
  for (std::size_t i = 0; i < handles.size(); ++i) {
    NodeTensor& tensor = tensors_[handles[i]];
    if (tensor.bucket != nullptr) {
      return absl::InternalError(
          absl::StrCat("coordinator schedules tensor '", tensor.name, "' twice"));
    }
    tensor.bucket = &bucket;
    tensor.position = i;
    tensor.ready_offset.Untell();
  }
  // Announcements of these tensors are void: the coordinator drops them at the same point of its
  // order of messages.
  for (TensorHandle handle : handles) {
    const NodeTensor& tensor = tensors_[handle];
    if (tensor.state == TensorState::kAnnounced && !tensor.held_back) Place(handle, now);
    // No local rank has ever registered it: it would never come.
    if (!tensors_[handle].wanted) RequestBreak(bucket, BreakReason::kWithdrawn, {handle});
  }
  return absl::OkStatus();
}

absl::Status NodeScheduler::Handle(const Launch& launch, TimePoint now) {
  const auto found = buckets_.find(launch.channel);
  if (found == buckets_.end() || !found->second->needs_launch() || !found->second->full() ||
      found->second->frozen() || found->second->started() != launch.occurrence) {
    return absl::InternalError(absl::StrCat("coordinator launches occurrence ", launch.occurrence,
                                            " of channel ", launch.channel,
                                            ", which this node has not offered"));
  }
  NodeBucket& bucket = *found->second;
  Start({launch.channel, bucket.Start()}, bucket.tensors());
  LetGo(now, false);
  return absl::OkStatus();
}

absl::Status NodeScheduler::Handle(const Freeze& freeze, TimePoint /*now*/) {
  const auto found = buckets_.find(freeze.channel);
  if (found == buckets_.end() || found->second->frozen()) {
    return absl::InternalError(
        absl::StrCat("coordinator freezes channel ", freeze.channel, ", which is not live here"));
  }
  found->second->Freeze();
  Send(Frozen{freeze.channel, found->second->started()});
  return absl::OkStatus();
}

absl::Status NodeScheduler::Handle(const Retire& retire, TimePoint now) {
  const auto found = buckets_.find(retire.channel);
  if (found == buckets_.end() || !found->second->frozen()) {
    return absl::InternalError(
        absl::StrCat("coordinator retires channel ", retire.channel, ", which is not frozen here"));
  }
  const std::unique_ptr<NodeBucket> bucket = std::move(found->second);
  buckets_.erase(found);
  filling_.erase(retire.channel);
  absl::Status status = AdvanceEpoch(retire.epoch);
  if (status.ok()) status = CancelBeyond(*bucket, retire.final_count);
  if (!status.ok()) return status;
  actions_.push_back(ChannelRetired{retire.channel, retire.final_count});
  for (TensorHandle handle : *bucket->tensors()) {
    tensors_[handle].bucket = nullptr;
    if (tensors_[handle].state == TensorState::kHeld) Place(handle, now);
    EraseIfUnused(handle);
  }
  return absl::OkStatus();
}

// Takes back the occurrence that was started here but not everywhere, if there is one.
absl::Status NodeScheduler::CancelBeyond(const NodeBucket& bucket, std::uint32_t final_count) {
  if (bucket.started() == final_count) return absl::OkStatus();
  const OperationId operation{bucket.channel(), final_count};
  const auto found = running_.find(operation);
  if (bucket.started() != final_count + 1 || found == running_.end() || bucket.needs_launch()) {
    return absl::InternalError(absl::StrCat(
        "channel ", bucket.channel(), " was started ", bucket.started(), " times here and ",
        final_count, " times elsewhere, and yet it completed: results can't be trusted"));
  }
  for (TensorHandle handle : *found->second) tensors_[handle].state = TensorState::kHeld;
  running_.erase(found);
  ++counters_.operations_cancelled;
  actions_.push_back(CancelOperation{operation});
  return absl::OkStatus();
}

}  // namespace ringd
