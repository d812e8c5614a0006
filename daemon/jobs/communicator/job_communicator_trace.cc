// What JobCommunicator knows of what is noted of its operations' times; nothing here changes
// anything.
#include <string>

#include "daemon/jobs/communicator/job_communicator.h"

namespace ringd {

void JobCommunicator::NoteFailure(TensorHandle handle, const absl::Status& status,
                                  Clock::time_point now) {
  for (const auto& queue : tensors_[handle.value()].queues) {
    if (queue.empty()) continue;  // the member has left
    return trace_.OnFailed(*queue.front().submission.registration, status.code(), now);
  }
}

bool JobCommunicator::HasTraced(std::uint32_t tensor) const noexcept {
  if (options_.by_order) return IsTracedOrdered(tensor);
  const bool on_host = CombinesLocally() && tensor < kFirstTracedDeviceTensor;
  if (on_host) return tensor < lane_->tensor_count();
  const std::uint32_t number = CombinesLocally() ? tensor - kFirstTracedDeviceTensor : tensor;
  return number < numbered_.size() && numbered_[number];
}

std::string JobCommunicator::NameOfTraced(std::uint32_t tensor) const {
  if (options_.by_order || !HasTraced(tensor)) return "";
  if (!CombinesLocally()) return scheduler_->NameOf(TensorHandle(tensor));
  if (tensor < kFirstTracedDeviceTensor) return lane_->NameOf(tensor).value_or("");
  return scheduler_->NameOf(TensorHandle(tensor - kFirstTracedDeviceTensor));
}

bool JobCommunicator::IsCredible(const TraceEvent& event, std::uint64_t now_ns) const {
  const bool local = CombinesLocally();
  switch (event.stage) {
    case TraceStage::kSubmitted:
    case TraceStage::kCompleted:
    case TraceStage::kReduced:
      if (!local) return false;
      break;
    case TraceStage::kRankExchange:
      if (local || options_.number != 0) return false;
      break;
    case TraceStage::kWaited:
      break;
    default:
      return false;
  }
  const bool names_one = local || event.stage != TraceStage::kWaited;
  if (names_one && !HasTraced(event.tensor)) return false;
  return event.at_ns <= now_ns && (!HasDuration(event.stage) || event.value <= event.at_ns);
}

}  // namespace ringd
