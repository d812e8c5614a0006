#include "daemon/schedule/node/node_scheduler.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <iterator>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "daemon/schedule/node/node_bucket.h"
#include "daemon/schedule/node/tensor_table.h"

namespace ringd {
namespace {

// How often buckets are looked at that may be out of use.
constexpr std::uint64_t kStepsPerLook = 100;

}  // namespace

// ---- tensors ----------------------------------------------------------------------------------

NodeScheduler::NodeScheduler(NodeSchedulerConfig config)
    : config_(std::move(config)), table_(std::make_unique<TensorTable>()), tensors_(*table_) {}

NodeScheduler::~NodeScheduler() = default;

TensorHandle NodeScheduler::Intern(absl::string_view name) {
  const TensorHandle handle = tensors_.Insert(std::string(name));
  tensors_[handle].wanted = true;
  return handle;
}

std::string NodeScheduler::NameOf(TensorHandle tensor) const { return tensors_[tensor].name; }

std::optional<NamedOccurrence> NodeScheduler::Find(absl::string_view name) const {
  TensorHandle handle;
  if (!tensors_.Find(std::string(name), handle)) return std::nullopt;
  return NamedOccurrence{handle};
}

TensorState NodeScheduler::StateOf(TensorHandle tensor) const { return tensors_[tensor].state; }

void NodeScheduler::EraseIfUnused(TensorHandle handle) {
  const NodeTensor& tensor = tensors_[handle];
  if (!tensor.wanted && tensor.bucket == nullptr && tensor.state == TensorState::kIdle) {
    tensors_.Erase(handle);
  }
}

bool NodeScheduler::AsScheduled(const NodeTensor& tensor) const {
  return tensor.reports.empty() && tensor.meta == tensor.bucket->meta(tensor.position);
}

// ---- what the engine reports -------------------------------------------------------------------

void NodeScheduler::OnLocallyReady(TensorHandle tensor, const TensorMeta& meta, bool follows_wait,
                                   TimePoint now) {
  OnReady(tensor, &meta, {}, follows_wait, now);
}

void NodeScheduler::OnLocalMismatch(TensorHandle tensor, std::vector<RankMeta> reports,
                                    TimePoint now) {
  OnReady(tensor, nullptr, std::move(reports), /*follows_wait=*/false, now);
}

void NodeScheduler::OnReady(TensorHandle handle, const TensorMeta* meta,
                            std::vector<RankMeta> reports, bool follows_wait, TimePoint now) {
  NodeTensor& tensor = tensors_[handle];
  assert(tensor.in_use && tensor.state == TensorState::kIdle);
  CountStep(tensor, now);
  // Descriptions rarely change: comparing is cheaper than copying the shape each time.
  if (meta != nullptr && tensor.meta != *meta) tensor.meta = *meta;
  tensor.reports = std::move(reports);
  tensor.follows_wait = follows_wait;
  tensor.since = now;
  tensor.needs_launch =
      meta != nullptr
          ? NeedsLaunch(*meta)
          : std::any_of(tensor.reports.begin(), tensor.reports.end(),
                        [](const RankMeta& report) { return NeedsLaunch(report.meta); });
  if (tensor.needs_launch) {
    PlaceOrHoldBack(handle, now);
  } else {
    Place(handle, now);
  }
}

// ---- streams that wait ------------------------------------------------------------------------

void NodeScheduler::PlaceOrHoldBack(TensorHandle handle, TimePoint now) {
  NodeTensor& tensor = tensors_[handle];
  tensor.behind_stream_wait = std::exchange(stream_waits_, false);
  const bool is_first = held_back_.empty();
  if (is_first && (!tensor.behind_stream_wait || unlaunched_ == 0)) {
    ++unlaunched_;
    Place(handle, now);
    return;
  }
  tensor.state = TensorState::kAnnounced;
  tensor.announced = false;
  tensor.held_back = true;
  held_back_.push_back(handle);
  if (is_first) BreakPartlyFilled(now);
}

// What they lack is behind the wait, or comes later.
void NodeScheduler::BreakPartlyFilled(TimePoint now) {
  held_back_until_ = now + config_.stream_patience;
  for (const std::uint32_t channel : filling_) {
    NodeBucket& bucket = *buckets_.at(channel);
    if (bucket.needs_launch()) RequestBreak(bucket, BreakReason::kBlocked, bucket.Missing());
  }
}

// Places what has been held back, up to the next that is behind a wait.
void NodeScheduler::LetGo(TimePoint now, bool whatever_is_before) {
  bool some = false;
  while (!held_back_.empty()) {
    const TensorHandle handle = held_back_.front();
    NodeTensor& tensor = tensors_[handle];
    const bool must_wait = tensor.behind_stream_wait && unlaunched_ > 0;
    if (must_wait && !std::exchange(whatever_is_before, false)) break;
    held_back_.pop_front();
    tensor.held_back = false;
    ++unlaunched_;
    Place(handle, now);
    some = true;
  }
  if (some && !held_back_.empty()) BreakPartlyFilled(now);
}

// Puts a ready tensor where its name belongs now: into its bucket, or among the announced ones.
void NodeScheduler::Place(TensorHandle handle, TimePoint now) {
  NodeTensor& tensor = tensors_[handle];
  if (tensor.bucket != nullptr) {
    tensor.state = TensorState::kHeld;
    if (AsScheduled(tensor)) {
      tensor.bucket->Fill(tensor.position, now);
      if (tensor.bucket->full()) {
        filling_.erase(tensor.bucket->channel());
      } else if (tensor.bucket->filled() == 1) {
        filling_.insert(tensor.bucket->channel());
      }
      StartIfFull(*tensor.bucket);
    } else {
      RequestBreak(*tensor.bucket, BreakReason::kMeta, {handle});
    }
  } else {
    Announce(handle);
  }
}

void NodeScheduler::Announce(TensorHandle handle) {
  NodeTensor& tensor = tensors_[handle];
  tensor.state = TensorState::kAnnounced;
  tensor.announced = false;
  to_announce_.push_back(handle);
}

void NodeScheduler::StartIfFull(NodeBucket& bucket) {
  if (!bucket.full() || bucket.frozen()) return;
  if (bucket.needs_launch()) {
    Send(Filled{bucket.channel(), bucket.started()});
  } else {
    const std::uint32_t occurrence = bucket.Start();
    Start({bucket.channel(), occurrence}, bucket.tensors());
  }
}

void NodeScheduler::Start(OperationId operation, const TensorList& tensors) {
  for (TensorHandle handle : *tensors) {
    NodeTensor& tensor = tensors_[handle];
    tensor.state = TensorState::kRunning;
    tensor.operation = operation;
    if (tensor.needs_launch) --unlaunched_;
  }
  ++(operation.channel == 0 ? counters_.operations_negotiated : counters_.operations_learned);
  running_.emplace(operation, tensors);
  actions_.push_back(StartOperation{operation, tensors});
}

void NodeScheduler::OnFinished(OperationId operation, TimePoint /*now*/) {
  const auto found = running_.find(operation);
  assert(found != running_.end());
  if (found == running_.end()) return;
  const TensorList tensors = std::move(found->second);
  running_.erase(found);
  for (TensorHandle handle : *tensors) tensors_[handle].state = TensorState::kIdle;
}

void NodeScheduler::FailTensorNow(TensorHandle handle, absl::string_view error) {
  tensors_[handle].state = TensorState::kIdle;
  if (tensors_[handle].needs_launch) --unlaunched_;
  actions_.push_back(TensorFailed{
      handle, absl::InvalidArgumentError(absl::StrCat(error, config_.of_communicator))});
}

void NodeScheduler::CountStep(NodeTensor& tensor, TimePoint now) {
  if (step_start_ == TimePoint()) step_start_ = now;
  if (tensor.last_step == counters_.steps + 1) {
    const std::uint64_t messages = counters_.messages_sent + counters_.messages_received;
    counters_.messages_last_step = messages - messages_at_step_start_;
    messages_at_step_start_ = messages;
    ++counters_.steps;
    step_start_ = now;
    if (counters_.steps % kStepsPerLook == 0) WithdrawOutOfUse(now);
  }
  tensor.last_step = counters_.steps + 1;
  tensor.ready_offset.Add(now - step_start_);
}

// They would be planned for as long as the job lasts, as if they took the line in each step.
void NodeScheduler::WithdrawOutOfUse(TimePoint now) {
  for (auto& [channel, bucket] : buckets_) {
    if (!bucket->IsOutOfUse(now, counters_.steps)) continue;
    RequestBreak(*bucket, BreakReason::kWithdrawn, *bucket->tensors());
  }
}

// ---- patience ---------------------------------------------------------------------------------

void NodeScheduler::OnTick(TimePoint now, const LocalRankView& ranks) {
  const std::function<bool(TensorHandle)> is_blocked = [&ranks](TensorHandle missing) {
    return ranks.AbsentRanksAreBlocked(missing);
  };
  for (const std::uint32_t channel : filling_) {
    NodeBucket& bucket = *buckets_.at(channel);
    const std::optional<BreakReason> reason = bucket.Overdue(now, config_, is_blocked);
    if (reason) RequestBreak(bucket, *reason, bucket.Missing());
  }
  if (held_back_.empty() || now < held_back_until_) return;
  // That waits for no rank, and may put something before what is held back.
  const bool is_settling = std::any_of(buckets_.begin(), buckets_.end(), [](const auto& entry) {
    return entry.second->needs_launch() && (entry.second->frozen() || entry.second->break_sent());
  });
  if (is_settling) {
    held_back_until_ = now + config_.stream_patience;
  } else {
    LetGo(now, /*whatever_is_before=*/true);
  }
}

std::optional<TimePoint> NodeScheduler::NextTick() const {
  std::optional<TimePoint> next;
  if (!held_back_.empty()) next = held_back_until_;
  for (const std::uint32_t channel : filling_) {
    const std::optional<TimePoint> check = buckets_.at(channel)->NextCheck(config_);
    if (check && (!next || *check < *next)) next = check;
  }
  return next;
}

void NodeScheduler::RequestBreak(NodeBucket& bucket, BreakReason reason,
                                 const std::vector<TensorHandle>& tensors) {
  if (bucket.frozen() || bucket.break_sent()) return;
  bucket.MarkBreakSent();
  ++counters_.breaks_requested[static_cast<int>(reason)];
  Break message{bucket.channel(), reason, bucket.started(), {}};
  for (TensorHandle handle : tensors) message.tensors.push_back(NameOf(handle));
  Send(std::move(message));
}

// ---- what goes out ----------------------------------------------------------------------------

void NodeScheduler::Send(NodeMessage message) {
  ++counters_.messages_sent;
  actions_.push_back(SendToCoordinator{std::move(message)});
}

void NodeScheduler::TakeActions(std::vector<Action>& out) {
  Ready ready{counters_.epoch, {}};
  for (TensorHandle handle : to_announce_) {
    NodeTensor& tensor = tensors_[handle];
    if (tensor.state != TensorState::kAnnounced || tensor.announced) continue;
    tensor.announced = true;
    std::vector<RankMeta> reports = tensor.reports;
    if (reports.empty()) reports.push_back({config_.first_rank, tensor.meta});
    ready.tensors.push_back({tensor.name, std::move(reports), tensor.follows_wait});
  }
  to_announce_.clear();
  if (!ready.tensors.empty()) Send(std::move(ready));
  out.insert(out.end(), std::make_move_iterator(actions_.begin()),
             std::make_move_iterator(actions_.end()));
  actions_.clear();
}

std::vector<TensorReadiness> NodeScheduler::TakeReadiness() {
  std::vector<NodeTensor*> known;
  bool is_news = false;
  for (std::uint32_t i = 0; i < tensors_.Capacity(); ++i) {
    NodeTensor& tensor = tensors_[TensorHandle(i)];
    if (!tensor.in_use || tensor.bucket == nullptr || !tensor.ready_offset.is_known()) continue;
    known.push_back(&tensor);
    is_news = is_news || tensor.ready_offset.IsNews();
  }
  std::vector<TensorReadiness> readiness;
  if (!is_news) return readiness;
  // All of the same steps: plans hang on which of two tensors comes first, and by how little.
  readiness.reserve(known.size());
  for (NodeTensor* tensor : known) {
    readiness.push_back({tensor->name, tensor->ready_offset.Tell()});
  }
  return readiness;
}

// ---- reports ----------------------------------------------------------------------------------

PendingTensor NodeScheduler::Describe(TensorHandle handle) const {
  const NodeTensor& tensor = tensors_[handle];
  PendingTensor pending;
  pending.tensor = handle;
  pending.state = tensor.state;
  pending.since = tensor.since;
  if (tensor.state == TensorState::kRunning) pending.channel = tensor.operation.channel;
  if (tensor.state == TensorState::kHeld) {
    pending.channel = tensor.bucket->channel();
    pending.missing = tensor.bucket->Missing();
  }
  return pending;
}

std::vector<PendingTensor> NodeScheduler::Pending(TimePoint ready_before) const {
  std::vector<PendingTensor> pending;
  for (std::uint32_t i = 0; i < tensors_.Capacity(); ++i) {
    const NodeTensor& tensor = tensors_[TensorHandle(i)];
    if (tensor.in_use && tensor.state != TensorState::kIdle && tensor.since < ready_before) {
      pending.push_back(Describe(TensorHandle(i)));
    }
  }
  return pending;
}

PendingTensor NodeScheduler::Lookup(absl::string_view name) const {
  TensorHandle handle;
  return tensors_.Find(std::string(name), handle) ? Describe(handle) : PendingTensor();
}

NodeSchedulerStatus NodeScheduler::Status() const {
  NodeSchedulerStatus status = counters_;
  for (const auto& [channel, bucket] : buckets_) {
    NodeBucketStatus entry;
    entry.channel = channel;
    entry.bytes = bucket->bytes();
    entry.occurrences = bucket->started();
    entry.filled = bucket->filled();
    entry.frozen = bucket->frozen();
    for (TensorHandle handle : *bucket->tensors()) {
      entry.tensors.push_back(NameOf(handle));
      entry.ready_offset = std::max(entry.ready_offset, tensors_[handle].ready_offset.mean());
    }
    status.buckets.push_back(std::move(entry));
  }
  return status;
}

}  // namespace ringd
