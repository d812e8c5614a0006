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

void JobCommunicator::OnFinished(const Execution& done, Clock::time_point now) {
  const TensorList tensors = done.tensors();
  if (failed()) return;  // Fail() has completed the submissions.
  ++counters_.operations;
  counters_.payload_bytes += done.layout().payload_bytes();
  trace_.OnCompleted(done.id(), done.layout().payload_bytes(), now);
  scheduler_->OnFinished(done.id(), now);
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
  if (lane_->ReducersLinger()) return;
  for (const auto& [tensor, status] : std::exchange(failed_tensors_, {})) {
    NoteFailure(tensor, status, now);
    CompleteTensor(tensor, status);
    ReportIfReady(tensor, now);
  }
}

void JobCommunicator::Fail(const absl::Status& cause) {
  if (failed()) return;
  failure_ = cause;
  lane_->Fail(cause.message());
  if (device_lane_ != nullptr) device_lane_->Abort(cause.message());
  device_running_.clear();
  failed_tensors_.clear();
  CompleteFailed();
}

void JobCommunicator::CompleteFailed() {
  if (lane_->ReducersLinger()) return;
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
  while (lane_->ReducersLinger()) std::this_thread::yield();
  if (failed()) CompleteFailed();
}

bool JobCommunicator::TakesPartInRunning(std::size_t member) const {
  const auto has_one = [&](const TensorList& tensors) {
    return std::any_of(tensors->begin(), tensors->end(), [&](TensorHandle handle) {
      return !tensors_[handle.value()].queues[member].empty();
    });
  };
  return lane_->AnyUnderWay(has_one) ||
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
  if (!lane_->HasInFlight(member)) return std::nullopt;
  for (const WaitingSubmission& waiting : Waiting(Clock::time_point::max())) {
    if (waiting.member == member) return waiting.name;
  }
  return "(which, this ringd has not seen yet)";
}

absl::Status JobCommunicator::CheckNobodyLeft(const StartOperation& start) const {
  const MemberNode& node = membership_->own();
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
