// How a context's operations begin.
#include "absl/strings/str_cat.h"
#include "client/core/context.h"

namespace ringd::client {
namespace {

bool IsOnHost(const Registration& tensor) noexcept {
  return tensor.description.place == TensorPlace::kHost;
}

absl::Status NotOnHost(const Registration& tensor) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor '", tensor.description.name,
                   "': it is in device memory: submit it by ringd_submit_on_stream"));
}

absl::Status NotOrdered(ringd_communicator communicator, bool exists) {
  if (communicator != RINGD_ALL_RANKS && !exists) {
    return absl::NotFoundError(
        absl::StrCat("this rank has no communicator ", communicator, " (any more)"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("operations of communicator ", communicator,
                   " are matched by name: register a tensor, and submit that"));
}

}  // namespace

absl::StatusOr<Registration*> Context::FindRegistration(ringd_registration registration) {
  Registration* tensor = registrations_.Find(registration);
  if (tensor != nullptr) return tensor;
  return absl::NotFoundError(absl::StrCat("there is no registration ", registration));
}

absl::Status Context::Submit(ringd_registration registration, const void* source, void* destination,
                             WhenFull when_full, ringd_operation* operation) {
  const absl::StatusOr<Registration*> found = FindRegistration(registration);
  if (!found.ok()) return found.status();
  return SubmitFound(**found, source, destination, when_full, operation);
}

absl::Status Context::SubmitFound(Registration& tensor, const void* source, void* destination,
                                  WhenFull when_full, ringd_operation* operation) {
  if (!IsOnHost(tensor)) return NotOnHost(tensor);
  if (unended_operations_ != nullptr) {
    absl::Status status = SettleEarlier(tensor, when_full);
    if (!status.ok()) return status;
  }
  absl::Status status = Enqueue(tensor, source, destination, when_full, operation);
  if (status.ok() && rank_exchange_operations_ != nullptr) tensor.submissions->Accepted();
  return status;
}

absl::Status Context::SubmitAwaited(ringd_registration registration, const void* source,
                                    void* destination, ringd_operation* operation) {
  const absl::StatusOr<Registration*> found = FindRegistration(registration);
  if (!found.ok()) return found.status();
  Registration& tensor = **found;
  if (rank_exchange_operations_ == nullptr || tensor.description.communicator != 0 ||
      !rank_exchange_operations_->Offers(tensor)) {
    return SubmitFound(tensor, source, destination, WhenFull::kWait, operation);
  }
  if (!IsOnHost(tensor)) return NotOnHost(tensor);
  absl::Status status = Staging::CheckPointers(tensor, source, destination);
  if (status.ok()) status = SettleEarlier(tensor, WhenFull::kWait);
  if (!status.ok()) return status;
  RankExchangeStay stay;
  switch (rank_exchange_operations_->Carry(tensor, source, destination, stay)) {
    case RankExchangeEnd::kCompleted:
      *operation = RINGD_DONE;
      return absl::OkStatus();
    case RankExchangeEnd::kUnderWay:
      *operation = unended_operations_->Keep(stay);
      return absl::OkStatus();
    case RankExchangeEnd::kEnded:
      return state_.status();
    case RankExchangeEnd::kGivenUp:
      break;
  }
  status = SubmitGivenUp(stay, WhenFull::kWait, operation);
  if (!status.ok()) tensor.submissions->Refused();
  return status;
}

absl::Status Context::SubmitInOrder(ringd_communicator communicator,
                                    const ringd_collective& collective, const void* source,
                                    void* destination, ringd_operation* operation) {
  OrderedDescriptions* descriptions = nullptr;
  {
    MutexLock lock(communicators_mutex_);
    const auto found = communicators_.find(communicator);
    if (found != communicators_.end()) descriptions = found->second.ordered.get();
    if (descriptions == nullptr) return NotOrdered(communicator, found != communicators_.end());
  }
  const absl::StatusOr<Registration*> taken = descriptions->Take(collective);
  if (!taken.ok()) return taken.status();
  const absl::Status status = Enqueue(**taken, source, destination, WhenFull::kWait, operation);
  if (!status.ok()) descriptions->GiveBack(**taken);
  return status;
}

absl::Status Context::SettleEarlier(const Registration& tensor, WhenFull when_full) {
  InterruptibleWait wait(is_interrupted_);
  absl::StatusOr<Clock::time_point> until = Clock::time_point::min();
  while (until.ok()) {
    const absl::Status status = unended_operations_->Settle(tensor, *until);
    if (!absl::IsDeadlineExceeded(status)) return status;
    // To a caller who does not wait it is as if there was no room.
    if (when_full == WhenFull::kFail) return absl::ResourceExhaustedError(status.message());
    until = wait.NextEnd();
  }
  return until.status();
}

absl::Status Context::SubmitGivenUp(const RankExchangeStay& stay, WhenFull when_full,
                                    ringd_operation* operation) {
  return Enqueue(*stay.tensor, stay.source, stay.destination, when_full, operation);
}

absl::Status Context::Enqueue(Registration& tensor, const void* source, void* destination,
                              WhenFull when_full, ringd_operation* operation) {
  const absl::StatusOr<std::uint64_t> sequence =
      tensor.lane.way->Submit(tensor, source, destination, when_full, is_interrupted_);
  if (!sequence.ok()) return sequence.status();
  *operation = tensor.lane.tag | (*sequence + 1);
  return absl::OkStatus();
}

}  // namespace ringd::client
