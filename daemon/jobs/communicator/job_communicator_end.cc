// How operations and submissions end: finished, failed, cancelled by who leaves; and what still works on them then.
#include <algorithm>
#include <thread>
#include <utility>

#include "daemon/jobs/communicator/job_communicator.h"

namespace ringd {

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
  scheduler_.OnFinished(execution.id(), now);
  for (const TensorHandle handle : *tensors) CompleteTensor(handle, absl::OkStatus());
  for (const TensorHandle handle : *tensors) ReportIfReady(handle, now);
}

void JobCommunicator::CompleteTensor(TensorHandle handle, const absl::Status& status) {
  Tensor& tensor = tensors_[handle.value()];
  tensor.outstanding = false;
  for (std::size_t m = 0; m < members_.size(); ++m) {
    auto& queue = tensor.queues[m];
    if (queue.empty()) continue;
    members_[m]->Complete(queue.front().submission.sequence, status);
    queue.pop();
    --waiting_;
    if (status.ok()) ++counters_.tensors;
    if (queue.empty()) --tensor.members_ready;
  }
}

void JobCommunicator::Fail(const absl::Status& cause) {
  if (failed()) return;
  failure_ = cause;
  if (way_.wire != nullptr) way_.wire->Abort(cause.message());
  for (auto& [id, running] : running_) {
    if (running.posted) Release(id, std::move(running.execution), /*by_backend=*/running.landing);
  }
  running_.clear();
  landing_.clear();
  to_post_.clear();
  CompleteFailed();
}

void JobCommunicator::CompleteFailed() {
  if (ReducersLinger()) return;
  for (Tensor& tensor : tensors_) {
    for (std::size_t m = 0; m < tensor.queues.size(); ++m) {
      auto& queue = tensor.queues[m];
      for (; !queue.empty(); queue.pop()) {
        members_[m]->Complete(queue.front().submission.sequence, failure_);
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

void JobCommunicator::Leave(int member) {
  const absl::Status cancelled = absl::CancelledError("this rank left its job");
  for (Tensor& tensor : tensors_) {
    if (tensor.queues.empty() || tensor.outstanding) continue;
    auto& queue = tensor.queues[static_cast<std::size_t>(member)];
    if (!queue.empty()) --tensor.members_ready;
    for (; !queue.empty(); queue.pop()) {
      members_[static_cast<std::size_t>(member)]->Complete(queue.front().submission.sequence,
                                                           cancelled);
      --waiting_;
    }
  }
}

}  // namespace ringd
