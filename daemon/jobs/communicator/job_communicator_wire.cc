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
    const Registration& first = *tensors_[running.execution->tensors()->front().value()]
                                     .queues.front()
                                     .front()
                                     .submission.registration;
    const NodeIndex root = membership_->NodeOf(first.meta.root_rank);
    const bool posted = ordered_ == nullptr ? way_.wire->TryPost(running.execution->Request(root))
                                            : PostOrdered(id, running, first, root);
    if (!posted) break;
    running.posted = true;
    running.execution->OfferWork();
    if (ordered_ == nullptr) meter_.OnPosted();
    if (MayWaitForMemory(id)) negotiated_bytes_ += bytes;
    it = to_post_.erase(it);
    ++work;
  }
  return work;
}

absl::StatusOr<std::size_t> JobCommunicator::AdvanceWire(Clock::time_point now) {
  absl::StatusOr<std::size_t> posted = PostToWire(now);
  if (!posted.ok()) return posted.status();
  std::size_t work = *posted;
  absl::Status failure;
  std::array<Completion, 16> completions;
  for (std::size_t count; (count = way_.wire->Poll(completions)) > 0;) {
    work += count;
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& completion = completions[i];
      if (ordered_ != nullptr) {
        OnOrderedCompletion(completion, failure);
        continue;
      }
      const auto found = running_.find(completion.id);
      if (found == running_.end() || completion.outcome != CollectiveOutcome::kDone) {
        // The backend touches its buffer no more.
        meter_.OnAbandoned();
        if (found == running_.end()) {
          if (const auto released = released_.find(completion.id); released != released_.end()) {
            released->second.by_backend = true;
          }
          continue;
        }
        if (failure.ok() && !failed()) failure = DescribeOutcome(completion);
        if (completion.id.channel == 0) {
          negotiated_bytes_ -= found->second.execution->layout().bytes();
        }
        Release(completion.id, std::move(found->second.execution), /*by_backend=*/true);
        running_.erase(found);
        continue;
      }
      const BucketLayout& layout = found->second.execution->layout();
      meter_.OnCompleted(layout.kind(), layout.bytes(), completion);
      trace_.OnMoved(completion);
      found->second.landing = true;
      landing_.push_back({completion.id, completion.times.finished});
    }
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
    if (ordered_ == nullptr) meter_.OnInPlace(id.channel, now - arrived);
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
  const Epoch epoch = scheduler_.epoch();
  if (failed() || !meter_.IsDue(/*idle=*/waiting_ == 0, epoch, now)) return;
  const NodeMeasurements measurements{meter_.TakeReport(epoch, now), scheduler_.TakeReadiness()};
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
