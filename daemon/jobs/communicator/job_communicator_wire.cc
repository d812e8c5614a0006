// JobCommunicator's dealings with the backend: several nodes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/communicator/job_communicator.h"
#include "daemon/peers/measurement_conversion.h"

namespace ringd {
namespace {

// Fusion buffers of negotiated operations in flight at once; one operation may be larger.
constexpr std::size_t kMaxNegotiatedBytes = std::size_t{1} << 30;

}  // namespace

absl::StatusOr<std::size_t> JobCommunicator::PostToWire(Clock::time_point now) {
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
      Finish(*done, now);
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
    if (!running.has_buffer && bytes > 0) {
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
    }
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

bool JobCommunicator::Post(OperationId id, Running& running) {
  const TensorMeta& meta = HeadOf(running.execution->tensors()->front()).meta;
  const std::uint64_t digest = scheduler_->DigestOf(meta);
  const std::optional<OperationId> guard = scheduler_->GuardOf(id);
  if (guard.has_value() && !running.guard.has_value()) {
    CollectiveRequest barrier;
    barrier.id = *guard;
    barrier.kind = CollectiveKind::kBarrier;
    barrier.description = digest;
    if (!way_.wire->TryPost(barrier)) return false;
    running.guard = guard;
  }
  if (guard.has_value() && running.execution->layout().bytes() == 0) {
    running.moved = true;
    return true;
  }
  CollectiveRequest request = running.execution->Request(membership_->NodeOf(meta.root_rank));
  request.description = digest;
  return way_.wire->TryPost(request);
}

void JobCommunicator::OnCompletion(const Completion& completion, absl::Status& failure) {
  const OperationId id = scheduler_->OperationOf(completion.id);
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
    if (!is_guard || layout.bytes() == 0) trace_.OnMoved(id, completion);
    if (!running.moved || (running.guard.has_value() && !running.agreed)) return;
    running.landing = true;
    landing_.push_back({id, completion.times.finished});
    return;
  }
  const bool may_differ = completion.outcome == CollectiveOutcome::kDisagreement &&
                          way_.wire->health().ok() && !failed();
  if (may_differ && scheduler_->OnDisagreement(id)) {
    trace_.OnCancelled(id, Clock::now());
    if (running.guard.has_value()) way_.wire->Cancel(is_guard ? id : *running.guard);
  } else if (failure.ok() && !failed()) {
    failure = DescribeOutcome(completion);
  }
  if (running.posted && MayWaitForMemory(id)) {
    negotiated_bytes_ -= running.execution->layout().bytes();
  }
  Release(id, std::move(running.execution), /*by_backend=*/running.moved || !running.posted);
  running_.erase(found);
  to_post_.remove(id);
}

absl::StatusOr<std::size_t> JobCommunicator::AdvanceWire(Clock::time_point now) {
  absl::StatusOr<std::size_t> posted = PostToWire(now);
  if (!posted.ok()) return posted.status();
  std::size_t work = *posted;
  absl::Status failure;
  std::array<Completion, 16> completions;
  for (std::size_t count; (count = way_.wire->Poll(completions)) > 0;) {
    work += count;
    for (std::size_t i = 0; i < count; ++i) OnCompletion(completions[i], failure);
  }
  work += Land();
  DropReleased();
  if (failed() && waiting_ > 0) CompleteFailed();
  CountBusy(now);
  if (!failure.ok()) return failure;
  if (!failed()) {
    if (absl::Status health = DescribeHealth(); !health.ok()) return health;
  }
  return work;
}

std::size_t JobCommunicator::Land() {
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
    Finish(*done, now);
    ++work;
  }
  return work;
}

bool JobCommunicator::CopyPiece() {
  return options_.reducers != nullptr &&
         std::any_of(running_.begin(), running_.end(),
                     [](const auto& entry) { return entry.second.execution->CopyPiece(); });
}

absl::Status JobCommunicator::OpenRankExchange(std::vector<UniqueFd> connections) {
  const RankExchangeGeometry geometry{static_cast<std::uint32_t>(members_.size()),
                                      static_cast<std::uint32_t>(membership_->nodes.size()),
                                      static_cast<std::uint32_t>(membership_->self.value()),
                                      membership_->rank_exchange.limit_bytes,
                                      membership_->rank_exchange.flat_bytes};
  auto opened =
      RankExchangeWatch::Create(geometry, std::move(connections), members_, options_.isolated);
  if (!opened.ok()) return opened.status();
  rank_exchange_ = *std::move(opened);
  return absl::OkStatus();
}

void JobCommunicator::ReportMeasurements(Clock::time_point now) {
  const Epoch epoch = scheduler_->epoch();
  if (failed() || !meter_.IsDue(/*idle=*/waiting_ == 0, epoch, now)) return;
  const NodeMeasurements measurements{meter_.TakeReport(epoch, now), scheduler_->TakeReadiness()};
  if (!measurements.empty()) Send(ToProto(measurements));
}

const MemberNode* JobCommunicator::LostNode() const {
  if (way_.wire == nullptr || way_.wire->health().ok()) return nullptr;
  const int lost = way_.wire->lost_node().value();
  if (lost < 0 || lost >= membership_->node_count()) return nullptr;
  return &membership_->nodes[static_cast<std::size_t>(lost)];
}

absl::Status JobCommunicator::DescribeHealth() const {
  absl::Status health = way_.wire->health();
  const MemberNode* const node = LostNode();
  if (node == nullptr) return health;
  // The backend's words are for whoever looks into the network.
  LogInfo(health.message(), Fields());
  return absl::AbortedError(absl::StrCat(DescribeLostNode(*node), " ", DescribeInFlight()));
}

absl::Status JobCommunicator::DescribeOutcome(const Completion& completion) const {
  if (absl::Status health = DescribeHealth(); !health.ok()) return health;
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
