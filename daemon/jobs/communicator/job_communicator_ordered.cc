// JobCommunicator's operations that are matched by order: their guards, and their ends where the
// ranks differ.
#include <utility>

#include "daemon/jobs/communicator/job_communicator.h"
#include "daemon/schedule/protocol/ordered_name.h"

namespace ringd {

void JobCommunicator::BeginOrdered() {
  std::vector<std::int32_t> ranks;
  for (const MemberNode& node : membership_->nodes) {
    for (const MemberRank& rank : node.ranks) ranks.push_back(rank.rank.value());
  }
  for (const auto& member : members_) member->ordered().Open(options_.id, ranks);
  if (!CombinesLocally()) {
    ordered_ = std::make_unique<OrderedScheduler>(options_.scheduler.first_rank);
  }
}

std::string JobCommunicator::NameOf(TensorHandle handle) const {
  return ordered_ == nullptr ? scheduler_.NameOf(handle) : OrderedName(ordered_->NumberAt(handle));
}

TensorHandle JobCommunicator::HandleOf(const std::string& name) const {
  return ordered_ == nullptr ? scheduler_.Lookup(name).tensor
                             : TensorHandle(OrderedPlaceOf(OrderedNumber(name).value_or(0)));
}

absl::Status JobCommunicator::OnOrderInquiry(const std::string& name) {
  if (failed()) return absl::OkStatus();
  if (ordered_ == nullptr) {
    return absl::InternalError("the coordinator asks for operations that are not matched by order");
  }
  return ordered_->OnInquiry(name);
}

bool JobCommunicator::PostOrdered(OperationId id, Running& running, const Registration& first,
                                  NodeIndex root) {
  const std::uint64_t digest = OrderedScheduler::DigestOf(first.meta);
  if (!running.guarded) {
    CollectiveRequest guard;
    guard.id = OrderedScheduler::GuardOf(id);
    guard.kind = CollectiveKind::kBarrier;
    guard.description = digest;
    if (!way_.wire->TryPost(guard)) return false;
    running.guarded = true;
  }
  if (running.execution->layout().bytes() == 0) {
    running.moved = true;
    return true;
  }
  CollectiveRequest request = running.execution->Request(root);
  request.description = digest;
  return way_.wire->TryPost(request);
}

void JobCommunicator::OnOrderedCompletion(const Completion& completion, absl::Status& failure) {
  const bool is_guard = OrderedScheduler::IsGuard(completion.id);
  const OperationId id = is_guard ? OrderedScheduler::DataOf(completion.id) : completion.id;
  const auto found = running_.find(id);
  if (found == running_.end()) {
    // The backend touches its buffer no more.
    const auto released = released_.find(id);
    if (!is_guard && released != released_.end()) released->second.by_backend = true;
    return;
  }
  Running& running = found->second;
  if (is_guard) {
    running.agreed = true;
  } else {
    running.moved = true;
  }
  if (completion.outcome == CollectiveOutcome::kDone) {
    if (!running.agreed || !running.moved) return;
    running.landing = true;
    landing_.push_back({id, completion.times.finished});
    return;
  }
  const bool differs = completion.outcome == CollectiveOutcome::kDisagreement &&
                       way_.wire->health().ok() && !failed();
  if (!differs && failure.ok() && !failed()) failure = DescribeOutcome(completion);
  if (differs) way_.wire->Cancel(is_guard ? id : OrderedScheduler::GuardOf(id));
  if (running.posted) negotiated_bytes_ -= running.execution->layout().bytes();
  Release(id, std::move(running.execution), /*by_backend=*/running.moved || !running.posted);
  running_.erase(found);
  to_post_.remove(id);
  if (differs) ordered_->OnDisagreement(OrderedScheduler::PlaceOf(id));
}

void JobCommunicator::FailOrdered(TensorHandle place, const absl::Status& status,
                                  Clock::time_point now) {
  failed_ordered_.emplace_back(place, status);
  EndFailedOrdered(now);
}

void JobCommunicator::EndFailedOrdered(Clock::time_point now) {
  // A reducer may be amid a piece: nothing is written to a rank that has heard of the end.
  if (ReducersLinger()) return;
  for (const auto& [place, status] : std::exchange(failed_ordered_, {})) {
    CompleteTensor(place, status);
    ReportIfReady(place, now);
  }
}

}  // namespace ringd
