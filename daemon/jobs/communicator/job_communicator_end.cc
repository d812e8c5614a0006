// How operations and submissions end: finished, failed, cancelled by who leaves; and what still
// works on them then.
#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/communicator/job_communicator.h"

namespace ringd {
namespace {

absl::Status Cancelled() { return absl::CancelledError("this rank left its job"); }

}  // namespace

void JobCommunicator::Cancel(OperationId id, Clock::time_point now) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  trace_.OnCancelled(id, now);
  to_post_.remove(id);
  if (found->second.guard.has_value()) way_.wire->Cancel(*found->second.guard);
  if (found->second.posted) {
    if (MayWaitForMemory(id)) negotiated_bytes_ -= found->second.execution->layout().bytes();
    way_.wire->Cancel(id);
    const bool by_backend = found->second.landing || found->second.moved;
    Release(id, std::move(found->second.execution), by_backend);
    std::erase_if(landing_, [id](const Landing& landing) { return landing.id == id; });
  }
  running_.erase(found);
}

void JobCommunicator::Release(OperationId id, std::unique_ptr<Execution> execution,
                              bool by_backend) {
  execution->WithdrawWork();
  released_.emplace(id, Released{std::move(execution), by_backend});
}

bool JobCommunicator::ReducersLinger() const noexcept {
  return std::any_of(released_.begin(), released_.end(),
                     [](const auto& entry) { return !entry.second.execution->Quiet(); });
}

void JobCommunicator::DropReleased() {
  std::erase_if(released_, [](const auto& entry) {
    return entry.second.by_backend && entry.second.execution->Quiet();
  });
}

void JobCommunicator::Finish(const Execution& execution, Clock::time_point now) {
  const TensorList tensors = execution.tensors();
  if (failed()) return;  // Fail() has completed the submissions.
  ++counters_.operations;
  counters_.payload_bytes += execution.layout().payload_bytes();
  trace_.OnCompleted(execution.id(), execution.layout().payload_bytes(), now);
  scheduler_->OnFinished(execution.id(), now);
  for (const TensorHandle handle : *tensors) CompleteTensor(handle, absl::OkStatus());
  for (const TensorHandle handle : *tensors) ReportIfReady(handle, now);
}

void JobCommunicator::CompleteTensor(TensorHandle handle, const absl::Status& status) {
  Tensor& tensor = tensors_[handle.value()];
  tensor.outstanding = false;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    auto& queue = tensor.queues[m];
    if (queue.empty()) continue;
    members_[m]->Complete(queue.front().submission, status);
    queue.pop();
    --waiting_;
    if (status.ok()) ++counters_.tensors;
    if (queue.empty()) --tensor.members_ready;
  }
}

void JobCommunicator::EndFailedTensors(Clock::time_point now) {
  // A reducer may be amid a piece: nothing is written to a rank that has heard of the end.
  if (ReducersLinger()) return;
  for (const auto& [tensor, status] : std::exchange(failed_tensors_, {})) {
    NoteFailure(tensor, status, now);
    CompleteTensor(tensor, status);
    ReportIfReady(tensor, now);
  }
}

void JobCommunicator::Fail(const absl::Status& cause) {
  if (failed()) return;
  failure_ = cause;
  if (way_.wire != nullptr) way_.wire->Abort(cause.message());
  if (device_lane_ != nullptr) device_lane_->Abort(cause.message());
  device_running_.clear();
  for (auto& [id, running] : running_) {
    if (!running.posted) continue;
    Release(id, std::move(running.execution), /*by_backend=*/running.landing || running.moved);
  }
  running_.clear();
  landing_.clear();
  to_post_.clear();
  failed_tensors_.clear();
  CompleteFailed();
}

void JobCommunicator::CompleteFailed() {
  if (ReducersLinger()) return;
  for (Tensor& tensor : tensors_) {
    for (std::size_t m = 0; m < tensor.queues.size(); ++m) {
      auto& queue = tensor.queues[m];
      for (; !queue.empty(); queue.pop()) {
        members_[m]->Complete(queue.front().submission, has_left_[m] ? Cancelled() : failure_);
      }
    }
    tensor.members_ready = 0;
    tensor.outstanding = false;
  }
  waiting_ = 0;
}

void JobCommunicator::Settle() {
  while (ReducersLinger()) std::this_thread::yield();
  if (failed()) CompleteFailed();
}

bool JobCommunicator::TakesPartInRunning(std::size_t member) const {
  const auto has_one = [&](const TensorList& tensors) {
    return std::any_of(tensors->begin(), tensors->end(), [&](TensorHandle handle) {
      return !tensors_[handle.value()].queues[member].empty();
    });
  };
  return std::any_of(
             running_.begin(), running_.end(),
             [&](const auto& entry) { return has_one(entry.second.execution->tensors()); }) ||
         std::any_of(device_running_.begin(), device_running_.end(),
                     [&](const auto& entry) { return has_one(entry.second.tensors); });
}

bool JobCommunicator::Leave(int member) {
  const auto place = static_cast<std::size_t>(member);
  if (has_left_[place]) return true;
  has_left_[place] = true;
  if (failed()) return true;
  // Reads or writes its memory, or is about to.
  if (TakesPartInRunning(place)) return false;
  const absl::Status cancelled = Cancelled();
  for (Tensor& tensor : tensors_) {
    if (tensor.queues.empty()) continue;
    auto& queue = tensor.queues[place];
    if (queue.empty()) continue;
    --tensor.members_ready;
    if (tensor.outstanding) withdrawn_ = true;
    for (; !queue.empty(); queue.pop()) {
      members_[place]->Complete(queue.front().submission, cancelled);
      --waiting_;
    }
  }
  return true;
}

std::optional<std::string> JobCommunicator::InFlightOf(int member) const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.queues.empty()) continue;
    const auto& queue = tensor.queues[static_cast<std::size_t>(member)];
    if (!queue.empty()) return queue.front().submission.registration->name;
  }
  if (way_.local == nullptr) return std::nullopt;
  const LocalMemberCounters counters = way_.local->Counters(member);
  if (counters.submitted == counters.ended) return std::nullopt;
  for (const WaitingSubmission& waiting : Waiting(Clock::time_point::max())) {
    if (waiting.member == member) return waiting.name;
  }
  return "(which, this ringd has not seen yet)";
}

absl::Status JobCommunicator::CheckNobodyLeft(const StartOperation& start) const {
  const MemberNode& node = membership_->nodes[static_cast<std::size_t>(membership_->self.value())];
  for (const TensorHandle handle : *start.tensors) {
    const Tensor& tensor = tensors_[handle.value()];
    for (std::size_t m = 0; m < tensor.queues.size(); ++m) {
      if (!tensor.queues[m].empty()) continue;
      return absl::AbortedError(
          absl::StrCat(DescribeRank(node.ranks[m].rank, node.ranks[m].pid, node.name),
                       " left job '", options_.job_id, "' (shutdown) while tensor '",
                       scheduler_->NameOf(handle), "'", OfCommunicator(), " was in flight"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ringd
