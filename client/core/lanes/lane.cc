#include "client/core/lanes/lane.h"

#include "absl/strings/str_cat.h"
#include "client/core/tensors/ordered_descriptions.h"

namespace ringd::client {

absl::StatusOr<std::uint64_t> Lane::Submit(Registration& tensor, const void* source,
                                           void* destination, WhenFull when_full,
                                           const InterruptCheck& is_interrupted) {
  Submission record{};
  OperationEnd end;
  if (absl::Status status = Place(tensor, source, destination, record, end); !status.ok()) {
    return status;
  }
  end.registration = &tensor;
  if (tensor.ordered != nullptr) {
    end.by_order = true;
    record.flags |= kByOrder;
    record.description = OrderedDescriptions::WordOf(tensor).ToWord();
    record.root_rank = tensor.description.root_rank;
  }
  InterruptibleWait wait(is_interrupted);
  for (;;) {
    const SubmitResult result = TrySubmit(tensor, source, destination, record, end);
    if (result == SubmitResult::kOk) return record.sequence;
    if (result == SubmitResult::kFull && when_full == WhenFull::kWait) {
      const absl::StatusOr<Clock::time_point> until = wait.NextEnd();
      if (!until.ok()) {
        staging_.Finish(end, false);
        return until.status();
      }
      if (queue_.WaitForRoom(end, *until)) continue;
    }
    staging_.Finish(end, false);
    if (result == SubmitResult::kFull && state_.alive()) {
      absl::Status full = absl::ResourceExhaustedError(absl::StrCat(
          "tensor '", tensor.description.name, "': ", queue_.in_flight(),
          " operations are in flight, all that there is room for; wait for one, or raise "
          "submission_ring_capacity in ringd.toml (RINGD_SUBMISSION_RING_CAPACITY)"));
      full.SetPayload(kForRoom, absl::Cord());
      return full;
    }
    return state_.status();
  }
}

}  // namespace ringd::client
