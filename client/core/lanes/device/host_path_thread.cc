// The host path's thread: what has come from the GPU is submitted, what has ended is told.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/lanes/device/host_path.h"

namespace ringd::client {
namespace {

using std::chrono::microseconds;

constexpr std::chrono::milliseconds kLongestSleep{100};
// How often to look at values that streams write: nobody tells. At first often, since copies are
// short; then less, since a stream may compute for long before it copies.
constexpr microseconds kFirstPause{20};
constexpr microseconds kLongestPause{250};
// Of a wait for what has been submitted, in which sources may come.
constexpr microseconds kWaitSlice{200};
// Likewise, where pieces come and go: as long as some take.
constexpr microseconds kPieceSlice{50};
// A GPU that has failed writes nothing: how often to ask it.
constexpr std::chrono::milliseconds kGpuInterval{250};

}  // namespace

void HostPath::Run() {
  gpu_->IgnoreCaptures();
  while (TakeNew()) {
    const bool submitted = SubmitReady();
    const bool moved = MovePieces();
    if (TakeEnded() || submitted || moved) {
      pause_ = kFirstPause;
      continue;
    }
    LookAtGpu();
    WaitForMore();
  }
}

bool HostPath::TakeNew() {
  const MutexLock lock(mutex_);
  if (!new_.empty()) pause_ = kFirstPause;
  copying_.splice(copying_.end(), new_);
  return !stops_;
}

void* HostPath::AddressOf(const OperationEnd& end) const noexcept {
  return end.device_block == nullptr ? nullptr : memory_->At(end.device_block->offset);
}

bool HostPath::IsSourceThere(const Item& item) const {
  if (memory_->has_values()) {
    const std::uint32_t ready = memory_->ReadyPieces(PairOf(item.sequence), item.sequence);
    return item.orders != nullptr ? ready > 0 : ready == PinnedArena::kAll;
  }
  DeviceBlock* const block = item.end.device_block;
  if (block == nullptr) return true;
  const MutexLock lock(block->mutex);
  // Of a GPU that has failed LookAtGpu tells.
  return block->last_use.IsReached().value_or(false);
}

bool HostPath::SubmitReady() {
  const bool alive = state_.alive();
  bool moved = false;
  // Names of which an earlier operation stays here.
  std::set<std::pair<std::uint32_t, std::uint32_t>> held_up;
  for (auto next = copying_.begin(); next != copying_.end();) {
    const auto item = next++;
    Registration& tensor = *item->end.registration;
    const auto name = std::pair(tensor.lane.communicator, tensor.numbers.tensor);
    if (alive && (held_up.contains(name) || !IsSourceThere(*item))) {
      held_up.insert(name);
      continue;
    }
    const absl::StatusOr<std::uint64_t> inner = alive ? SubmitOne(*item) : state_.status();
    // Once the context has ended, these are its reasons.
    if (alive &&
        (absl::IsResourceExhausted(inner.status()) || absl::IsUnavailable(inner.status()))) {
      held_up.insert(name);
      continue;
    }
    moved = true;
    if (inner.ok()) {
      item->inner = *inner;
      submitted_.splice(submitted_.end(), copying_, item);
    } else {
      End(*item, inner.status(), true);
      copying_.erase(item);
    }
  }
  return moved;
}

// kUnavailable: not in pieces; later as a whole.
absl::StatusOr<std::uint64_t> HostPath::SubmitOne(Item& item) {
  Registration& tensor = *item.end.registration;
  if (item.orders == nullptr) return carrier_.submit(tensor, AddressOf(item.end));
  const absl::StatusOr<StagedCopies::InPieces> inner =
      carrier_.submit_in_pieces(tensor, AddressOf(item.end));
  if (absl::IsUnavailable(inner.status()) && state_.alive()) item.orders = nullptr;
  if (!inner.ok()) return inner.status();
  item.progress = inner->progress;
  return inner->sequence;
}

bool HostPath::MovePieces() {
  bool moved = false;
  for (Item& item : submitted_) {
    if (item.progress == kNoProgress) continue;
    const std::uint32_t pair = PairOf(item.sequence);
    const auto& source = item.orders->source;
    const auto count = static_cast<std::uint32_t>(source.size());
    const std::uint32_t ready = std::min(memory_->ReadyPieces(pair, item.sequence), count);
    for (; item.told < ready; ++item.told) {
      if (item.end.registration->sends) carrier_.tell_piece(item.progress, source[item.told]);
      moved = true;
    }
    const std::uint64_t final_pieces = carrier_.final_pieces(item.progress);
    const auto& result = item.orders->result;
    const std::uint32_t before = item.done;
    while (item.done < count && (final_pieces >> result[item.done] & 1) != 0) ++item.done;
    if (item.done == before) continue;
    memory_->SetDone(pair, item.sequence, item.done);
    moved = true;
  }
  return moved;
}

bool HostPath::TakeEnded() {
  bool moved = false;
  for (auto next = submitted_.begin(); next != submitted_.end();) {
    const auto item = next++;
    OperationQueue& queue = carrier_.queue_of(*item->end.registration);
    if (queue.Test(item->inner) == WaitResult::kTimeout) continue;
    OperationOutcome outcome;
    OperationEnd end;
    if (!queue.Consume(item->inner, outcome, end)) {
      End(*item, absl::InternalError("its operation in host memory is not there any more"), true);
    } else if (outcome.completed) {
      End(*item, carrier_.conclude(outcome, end), true);
    } else {
      End(*item, state_.status(), false);
    }
    submitted_.erase(item);
    moved = true;
  }
  return moved;
}

void HostPath::End(const Item& item, const absl::Status& status, bool is_certain) {
  memory_->SetDone(PairOf(item.sequence), item.sequence, PinnedArena::kAll);
  const MutexLock lock(mutex_);
  // Nobody takes it out before.
  Operation& operation = operations_.at(item.sequence);
  operation.has_ended = true;
  operation.status = status;
  operation.is_certain = is_certain;
  changed_.NotifyAll();
}

void HostPath::WaitForMore() {
  if (!submitted_.empty()) {
    // One after the other, since they may be of several queues.
    submitted_.splice(submitted_.end(), submitted_, submitted_.begin());
    const Item& item = submitted_.back();
    const bool in_pieces = std::any_of(submitted_.begin(), submitted_.end(),
                                       [](const Item& one) { return one.progress != kNoProgress; });
    static_cast<void>(
        carrier_.queue_of(*item.end.registration)
            .WaitUnnoted(item.inner, Clock::now() + (in_pieces ? kPieceSlice : kWaitSlice)));
    return;
  }
  const MutexLock lock(mutex_);
  if (stops_ || !new_.empty()) return;
  if (copying_.empty()) {
    stirred_.WaitUntil(mutex_, Clock::now() + kLongestSleep);
    return;
  }
  stirred_.WaitUntil(mutex_, Clock::now() + pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void HostPath::LookAtGpu() {
  if (Clock::now() - gpu_seen_ < kGpuInterval) return;
  gpu_seen_ = Clock::now();
  // One whose source is not all there.
  const auto first = std::find_if(copying_.begin(), copying_.end(), [](const Item& item) {
    return item.end.device_block != nullptr;
  });
  const auto in_pieces = std::find_if(submitted_.begin(), submitted_.end(), [](const Item& item) {
    return item.progress != kNoProgress && item.told < item.orders->source.size();
  });
  if (first == copying_.end() && in_pieces == submitted_.end()) return;
  DeviceBlock* const block =
      first != copying_.end() ? first->end.device_block : in_pieces->end.device_block;
  absl::Status status;
  {
    const MutexLock lock(block->mutex);
    status = block->last_use.IsReached().status();
  }
  if (!status.ok()) {
    carrier_.give_up(absl::Status(
        status.code(), absl::StrCat("sources can't be copied from the GPU: ", status.message())));
  }
}

}  // namespace ringd::client
