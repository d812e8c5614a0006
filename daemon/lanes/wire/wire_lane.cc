#include "daemon/lanes/wire/wire_lane.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// Fusion buffers of negotiated operations in flight at once; one operation may be larger.
constexpr std::size_t kMaxNegotiatedBytes = std::size_t{1} << 30;

// What the meter wants to know of the link before it has measured anything.
LinkModel LinkOf(const Membership& membership) {
  LinkModel link;
  link.node_count = membership.node_count();
  link.small_bytes = std::min<std::size_t>(membership.algorithms.small_all_reduce_bytes,
                                           membership.algorithms.chunk_bytes);
  link.flat_bytes = membership.algorithms.flat_all_reduce_bytes;
  return link;
}

}  // namespace

WireLane::WireLane(Options options, std::unique_ptr<Communicator> wire,
                   std::shared_ptr<const Membership> membership,
                   const std::vector<std::shared_ptr<Session>>& members,
                   OperationScheduler& scheduler, LaneEvents& events)
    : options_(options),
      wire_(std::move(wire)),
      membership_(std::move(membership)),
      members_(members),
      scheduler_(scheduler),
      events_(events),
      meter_(LinkOf(*membership_), membership_->algorithms.chunk_bytes) {
  if (!options_.measures) meter_.TurnOff();
}

WireLane::~WireLane() {
  // The backend lets go of the buffers before the executions that own them go.
  wire_.reset();
}

absl::Status WireLane::Start(std::unique_ptr<Execution> execution, NodeIndex root,
                             std::uint64_t digest) {
  const OperationId id = execution->id();
  Running running;
  running.execution = std::move(execution);
  running.root = root;
  running.digest = digest;
  running_.emplace(id, std::move(running));
  to_post_.push_back(id);
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> WireLane::PostStarted(Clock::time_point now) {
  std::size_t work = 0;
  bool negotiated_wait = false;
  if (ReducersLinger()) return work;  // For a piece's pass; then they wake us.
  for (auto it = to_post_.begin(); it != to_post_.end();) {
    const OperationId id = *it;
    Running& running = running_.at(id);
    const std::size_t bytes = running.execution->layout().bytes();
    if (bytes == 0 && id.channel == 0) {
      // Nothing to move: that all nodes agreed to start it is all there is to it. (Nobody agreed on
      // a learned barrier: the backend carries it out.)
      const std::unique_ptr<Execution> done = std::move(running.execution);
      running_.erase(id);
      it = to_post_.erase(it);
      events_.OnFinished(*done, now);
      ++work;  // it may have left something to be announced
      continue;
    }
    // Negotiated operations are in the same order everywhere, as are those that are matched by
    // order, so they may wait for each other, and what they take of our memory is bounded. Learned
    // ones must not wait.
    if (MayWaitForMemory(id) &&
        (negotiated_wait ||
         (negotiated_bytes_ > 0 && negotiated_bytes_ + bytes > kMaxNegotiatedBytes))) {
      negotiated_wait = true;
      ++it;
      continue;
    }
    if (absl::Status status = GiveBuffer(running); !status.ok()) return status;
    if (!Post(id, running)) break;
    running.posted = true;
    running.execution->OfferWork();
    meter_.OnPosted();
    if (MayWaitForMemory(id)) negotiated_bytes_ += bytes;
    it = to_post_.erase(it);
    ++work;
  }
  return work;
}

absl::Status WireLane::GiveBuffer(Running& running) {
  const std::size_t bytes = running.execution->layout().bytes();
  if (running.has_buffer || bytes == 0) return absl::OkStatus();
  PooledBuffer buffer = buffers_.Acquire(bytes);
  if (buffer.data() == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a fusion buffer of ", bytes, " bytes"));
  }
  running.execution->UseBuffer(std::move(buffer));
  running.has_buffer = true;
  if (options_.reducers != nullptr) {
    const RingPlace place{.node_count = static_cast<std::uint32_t>(membership_->node_count()),
                          .self = static_cast<std::uint32_t>(membership_->self.value()),
                          .chunk_bytes = ChunkBytesOf(membership_->algorithms)};
    running.execution->PrepareWork(*options_.reducers, place);
  }
  return absl::OkStatus();
}

bool WireLane::Post(OperationId id, Running& running) {
  const std::optional<OperationId> guard = scheduler_.GuardOf(id);
  if (guard.has_value() && !running.guard.has_value()) {
    CollectiveRequest barrier;
    barrier.id = *guard;
    barrier.kind = CollectiveKind::kBarrier;
    barrier.description = running.digest;
    if (!wire_->TryPost(barrier)) return false;
    running.guard = guard;
  }
  if (guard.has_value() && running.execution->layout().bytes() == 0) {
    running.moved = true;
    return true;
  }
  CollectiveRequest request = running.execution->Request(running.root);
  request.description = running.digest;
  return wire_->TryPost(request);
}

void WireLane::OnCompletion(const Completion& completion, absl::Status& failure) {
  const OperationId id = scheduler_.OperationOf(completion.id);
  const bool is_guard = id != completion.id;
  const auto found = running_.find(id);
  const bool is_done = completion.outcome == CollectiveOutcome::kDone;
  if (!is_guard && (found == running_.end() || !is_done)) meter_.OnAbandoned();
  if (found == running_.end()) {
    // The backend touches its buffer no more.
    const auto released = released_.find(id);
    if (!is_guard && released != released_.end()) released->second.by_backend = true;
    return;
  }
  Running& running = found->second;
  (is_guard ? running.agreed : running.moved) = true;
  if (is_done) {
    const BucketLayout& layout = running.execution->layout();
    if (!is_guard) meter_.OnCompleted(layout.kind(), layout.bytes(), completion);
    // Where there is no data the guard is all that moves.
    if (!is_guard || layout.bytes() == 0) events_.OnMoved(id, completion);
    if (!running.moved || (running.guard.has_value() && !running.agreed)) return;
    running.landing = true;
    landing_.push_back({id, completion.times.finished});
    return;
  }
  const bool may_differ =
      completion.outcome == CollectiveOutcome::kDisagreement && wire_->health().ok() && !failed_;
  if (may_differ && scheduler_.OnDisagreement(id)) {
    events_.OnGivenUp(id, Clock::now());
    if (running.guard.has_value()) wire_->Cancel(is_guard ? id : *running.guard);
  } else if (failure.ok() && !failed_) {
    failure = DescribeOutcome(completion);
  }
  if (running.posted && MayWaitForMemory(id)) {
    negotiated_bytes_ -= running.execution->layout().bytes();
  }
  Release(id, std::move(running.execution), /*by_backend=*/running.moved || !running.posted);
  running_.erase(found);
  to_post_.remove(id);
}

absl::StatusOr<std::size_t> WireLane::Advance(Clock::time_point now) {
  absl::StatusOr<std::size_t> posted = PostStarted(now);
  if (!posted.ok()) return posted.status();
  std::size_t work = *posted;
  absl::Status failure;
  std::array<Completion, 16> completions;
  for (std::size_t count; (count = wire_->Poll(completions)) > 0;) {
    work += count;
    for (std::size_t i = 0; i < count; ++i) OnCompletion(completions[i], failure);
  }
  work += Land();
  DropReleased();
  if (!failure.ok()) return failure;
  return work;
}

std::size_t WireLane::Land() {
  std::size_t work = 0;
  bool copied = false;
  for (std::size_t i = 0; i < landing_.size();) {
    const auto [id, arrived] = landing_[i];
    Execution& execution = *running_.at(id).execution;
    // Nobody need have come for it. One piece in a turn: others want theirs.
    if (!copied && execution.CopyPiece()) {
      copied = true;
      ++work;
    }
    if (!execution.InPlace()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Execution> done = std::move(running_.at(id).execution);
    running_.erase(id);
    landing_.erase(landing_.begin() + static_cast<std::ptrdiff_t>(i));
    if (MayWaitForMemory(id)) negotiated_bytes_ -= done->layout().bytes();
    const Clock::time_point now = Clock::now();
    meter_.OnInPlace(id.channel, now - arrived);
    events_.OnFinished(*done, now);
    ++work;
  }
  return work;
}

bool WireLane::CopyPiece() {
  return options_.reducers != nullptr &&
         std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return entry.second.execution->CopyPiece(); });
}

void WireLane::Cancel(OperationId id, Clock::time_point now) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  events_.OnGivenUp(id, now);
  to_post_.remove(id);
  if (found->second.guard.has_value()) wire_->Cancel(*found->second.guard);
  if (found->second.posted) {
    if (MayWaitForMemory(id)) negotiated_bytes_ -= found->second.execution->layout().bytes();
    wire_->Cancel(id);
    const bool by_backend = found->second.landing || found->second.moved;
    Release(id, std::move(found->second.execution), by_backend);
    std::erase_if(landing_, [id](const Landing& landing) { return landing.id == id; });
  }
  running_.erase(found);
}

void WireLane::Retire(std::uint32_t channel) {
  meter_.Forget(channel);
  // What has been started but not posted must still find the messages that came early for it.
  const bool unposted = std::any_of(to_post_.begin(), to_post_.end(),
                                    [channel](OperationId id) { return id.channel == channel; });
  // Nothing of the channel will be posted again: the last number marks all that is not in flight.
  if (!unposted) wire_->Cancel(OperationId{channel, UINT32_MAX});
}

void WireLane::Fail(absl::string_view reason) {
  failed_ = true;
  wire_->Abort(reason);
  for (auto& [id, running] : running_) {
    if (!running.posted) continue;
    Release(id, std::move(running.execution), /*by_backend=*/running.landing || running.moved);
  }
  running_.clear();
  landing_.clear();
  to_post_.clear();
}

void WireLane::Release(OperationId id, std::unique_ptr<Execution> execution, bool by_backend) {
  execution->WithdrawWork();
  released_.emplace(id, Released{std::move(execution), by_backend});
}

bool WireLane::ReducersLinger() const noexcept {
  return std::any_of(released_.begin(), released_.end(),
                     [](const auto& entry) { return !entry.second.execution->Quiet(); });
}

void WireLane::DropReleased() {
  std::erase_if(released_, [](const auto& entry) {
    return entry.second.by_backend && entry.second.execution->Quiet();
  });
}

bool WireLane::AnyUnderWay(const std::function<bool(const TensorList&)>& is_wanted) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& entry) {
    return is_wanted(entry.second.execution->tensors());
  });
}

std::optional<std::vector<LinkObservation>> WireLane::TakeMeasurements(bool idle, Epoch epoch,
                                                                       Clock::time_point now) {
  if (!meter_.IsDue(idle, epoch, now)) return std::nullopt;
  return meter_.TakeReport(epoch, now);
}

std::optional<NodeIndex> WireLane::LostNode() const {
  if (wire_->health().ok()) return std::nullopt;
  const NodeIndex lost = wire_->lost_node();
  const bool is_known = lost.value() >= 0 && lost.value() < membership_->node_count();
  return is_known ? std::optional(lost) : std::nullopt;
}

absl::Status WireLane::DescribeOutcome(const Completion& completion) const {
  const int culprit = completion.culprit.value();
  const std::string who =
      culprit >= 0 && culprit < membership_->node_count()
          ? absl::StrCat(" (", membership_->nodes[static_cast<std::size_t>(culprit)].name, ")")
          : std::string();
  return absl::InternalError(absl::StrCat("collective ", completion.id.channel, "/",
                                          completion.id.sequence,
                                          " ended: ", Name(completion.outcome), who));
}

}  // namespace ringd
