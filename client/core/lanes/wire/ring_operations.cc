#include "client/core/lanes/wire/ring_operations.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/tensors/ordered_descriptions.h"
#include "client/core/waiting/relax.h"

namespace ringd::client {
namespace {

// Every sleep is bounded, so that a lost wake-up or a silent end delays and never hangs.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Looks between two readings of the clock while spinning.
constexpr int kLooksPerClock = 32;

bool ComesInPieces(const OperationEnd& end) noexcept {
  return end.progress != kNoProgress && end.copy_from != nullptr;
}

}  // namespace

RingOperations::RingOperations(const SessionSegmentView& segment, std::uint32_t submission_capacity,
                               std::uint32_t completion_capacity, UniqueFd engine_wakeup,
                               SessionState& state, StagedCopies& copies,
                               std::chrono::nanoseconds spin_budget)
    : OperationQueue(submission_capacity),
      segment_(segment),
      capacity_(submission_capacity),
      engine_wakeup_(std::move(engine_wakeup)),
      state_(state),
      copies_(copies),
      spin_(spin_budget),
      submissions_(segment.submission_cursors, segment.submissions, submission_capacity),
      completions_(segment.completion_cursors, segment.completions, completion_capacity),
      slot_mask_(submission_capacity - 1),
      slots_(submission_capacity) {}

SubmitResult RingOperations::TrySubmit(Submission& record, const OperationEnd& end) {
  if (!state_.alive()) return SubmitResult::kEnded;
  record.submitted_ns = MonotonicNanos();
  {
    MutexLock lock(mutex_);
    if (in_flight_.load(std::memory_order_relaxed) >= capacity_) {
      Drain();
      if (in_flight_.load(std::memory_order_relaxed) >= capacity_) return SubmitResult::kFull;
    }
    const std::uint64_t sequence = next_sequence_.load(std::memory_order_relaxed);
    Slot& slot = SlotOf(sequence);
    std::atomic<std::uint64_t>& word = PlaceOf(sequence);
    if (StateOf(word.load(std::memory_order_relaxed)) != kFree) {
      MakeRoomInSlot(slot, word.load(std::memory_order_relaxed));
    }
    record.sequence = sequence;
    const bool follows_wait = seen_end_.load(std::memory_order_relaxed);
    record.flags &= ~std::uint32_t{kFollowsWait};
    if (follows_wait) record.flags |= kFollowsWait;
    // First the slot, then the record: the completion may come before this thread goes on.
    slot.end = end;
    if (end.by_order && end.registration->is_scaled) {
      segment_.ScalesOf(sequence) = OrderedDescriptions::ScalesOf(*end.registration);
    }
    word.store(Word(sequence, kInFlight, end.IsNothing()), std::memory_order_release);
    switch (submissions_.TryPush(record)) {
      case RingResult::kOk:
        break;
      case RingResult::kFull:
        // ringd has completed what it never took from the ring: not by the rules, but harmless.
        word.store(Word(sequence, kFree), std::memory_order_release);
        return SubmitResult::kFull;
      default:
        word.store(Word(sequence, kFree), std::memory_order_release);
        state_.Lose(absl::InternalError("ringd broke the rules of the submission ring"));
        return SubmitResult::kEnded;
    }
    if (follows_wait) seen_end_.store(false, std::memory_order_relaxed);
    next_sequence_.store(sequence + 1, std::memory_order_release);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    if (ComesInPieces(end)) in_pieces_.fetch_add(1, std::memory_order_relaxed);
  }
  RingEngine();
  return SubmitResult::kOk;
}

void RingOperations::CopySource(const OperationEnd& end) {
  copies_.CopyIn(end, [this] {
    RingEngine();
    // Where there are more who want to run than processors, what sends the piece goes first.
    std::this_thread::yield();
  });
}

void RingOperations::RingEngine() noexcept {
  // Pairs with the engine's fence: our record before, the look at engine_sleeps after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (segment_.header->engine_sleeps.load(std::memory_order_relaxed) == 0) return;
  // Of all who see the engine asleep, the first wakes it. The engine sets the word anew before each
  // sleep and then looks at the rings once more, so a cleared word can't hide a record from it.
  if (segment_.header->engine_sleeps.exchange(0, std::memory_order_relaxed) == 0) return;
  const std::uint64_t one = 1;
  // Fails only if the counter is full (a wake-up is pending then) or ringd has gone (seen
  // elsewhere).
  [[maybe_unused]] const ssize_t written = ::write(engine_wakeup_.get(), &one, sizeof(one));
}

void RingOperations::MakeRoomInSlot(Slot& slot, std::uint64_t word) {
  auto straggler = std::make_unique<Slot>();
  straggler->word = word;
  straggler->end = slot.end;
  straggler->outcome = slot.outcome;
  straggler->fetching = std::exchange(slot.fetching, false);
  stragglers_.emplace(SequenceOf(word), std::move(straggler));
  slot.outcome = {};
}

RingOperations::Slot* RingOperations::Find(std::uint64_t sequence) {
  const std::uint64_t word = PlaceOf(sequence).load(std::memory_order_relaxed);
  if (ResultOf(word, sequence) != WaitResult::kUnknown) return &SlotOf(sequence);
  const auto straggler = stragglers_.find(sequence);
  return straggler == stragglers_.end() ? nullptr : straggler->second.get();
}

std::uint64_t RingOperations::WordOf(const Slot& slot, std::uint64_t sequence) const {
  const std::uint64_t word = PlaceOf(sequence).load(std::memory_order_relaxed);
  return SequenceOf(word) == sequence ? word : slot.word;
}

void RingOperations::SetWord(Slot& slot, std::uint64_t word) {
  const std::uint64_t sequence = SequenceOf(word);
  if (&slot == &SlotOf(sequence)) {
    PlaceOf(sequence).store(word, std::memory_order_release);
  } else {
    slot.word = word;
  }
}

bool RingOperations::HasUndrained() const noexcept {
  // Acquire pairs with ringd's release when it publishes completions.
  return segment_.completion_cursors->produced.load(std::memory_order_acquire) !=
         drained_.load(std::memory_order_acquire);
}

void RingOperations::DrainIfAny() {
  if (!HasUndrained()) return;
  MutexLock lock(mutex_);
  Drain();
}

void RingOperations::Drain() {
  CompletionRecord record;
  std::uint64_t drained = drained_.load(std::memory_order_relaxed);
  for (;;) {
    const RingResult result = completions_.TryPop(record);
    if (result == RingResult::kCorrupt) {
      state_.Lose(absl::InternalError("ringd broke the rules of the completion ring"));
    }
    if (result != RingResult::kOk) break;
    Accept(record);
    // Last, and one by one: a waiter that sees nothing undrained sees every outcome so far.
    drained_.store(++drained, std::memory_order_release);
  }
}

void RingOperations::Accept(const CompletionRecord& record) {
  Slot* slot = record.sequence < next_sequence_.load(std::memory_order_relaxed)
                   ? Find(record.sequence)
                   : nullptr;
  const std::uint64_t word = slot == nullptr ? 0 : WordOf(*slot, record.sequence);
  if (slot == nullptr || !IsInFlight(word, record.sequence)) {
    // After a failure a waiter may have given up on an operation whose end comes only now.
    if (state_.alive()) {
      state_.Lose(absl::InternalError(
          absl::StrCat("ringd completed operation ", record.sequence, ", which is not in flight")));
    }
    return;
  }
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  if (record.status == 0 && IsPlain(word)) {
    SetWord(*slot, Word(record.sequence, kDone, true));
    return;
  }
  slot->outcome.completed = true;
  slot->outcome.status = record.status;
  slot->outcome.text = record.status == 0 ? nullptr : TextOf(record);
  if (record.status != 0 && slot->end.timeline_pair != kNoTimelinePair) {
    released_pairs_.insert(slot->end.timeline_pair);
  }
  if (ComesInPieces(slot->end)) in_pieces_.fetch_sub(1, std::memory_order_relaxed);
  SetWord(*slot, Word(record.sequence, kDone));
}

std::shared_ptr<const std::string> RingOperations::TextOf(const CompletionRecord& record) {
  if (record.error_slot >= kErrorTextSlots) return nullptr;
  if (cached_error_ != nullptr && cached_error_slot_ == record.error_slot &&
      cached_error_version_ == record.error_version) {
    return cached_error_;
  }
  std::optional<std::string> text =
      ReadErrorText(segment_.error_texts[record.error_slot], record.error_version);
  if (!text.has_value()) return nullptr;
  cached_error_slot_ = record.error_slot;
  cached_error_version_ = record.error_version;
  cached_error_ = std::make_shared<const std::string>(std::move(*text));
  return cached_error_;
}

WaitResult RingOperations::Look(std::uint64_t sequence) {
  const std::uint64_t word = PlaceOf(sequence).load(std::memory_order_acquire);
  const WaitResult result = ResultOf(word, sequence);
  if (result != WaitResult::kUnknown) return result;
  if (sequence >= next_sequence_.load(std::memory_order_acquire)) return WaitResult::kUnknown;
  MutexLock lock(mutex_);
  const Slot* slot = Find(sequence);
  if (slot == nullptr) return WaitResult::kUnknown;
  return ResultOf(WordOf(*slot, sequence), sequence);
}

// `condition` says kTimeout for "not yet"; anything else ends the wait with that result.
template <typename Condition>
WaitResult RingOperations::WaitFor(Condition condition, Clock::time_point deadline,
                                   WireTrace* trace, std::uint64_t sequence) {
  // The common case costs no clock: what is waited for has come already.
  DrainIfAny();
  if (const WaitResult result = condition(); result != WaitResult::kTimeout) return result;

  const Presence presence = WhileWaiting();
  const TracedWait traced(trace, sequence);

  const auto check = [&](WaitResult& result) {
    DrainIfAny();
    result = condition();
    if (result != WaitResult::kTimeout) return true;
    if (!state_.alive() && state_.GivenUp()) {
      // A completion may have arrived between the look and the end.
      DrainIfAny();
      result = condition();
      if (result == WaitResult::kTimeout) result = WaitResult::kEnded;
      return true;
    }
    return false;
  };

  WaitResult result = WaitResult::kTimeout;
  const Clock::time_point start = Clock::now();
  const std::chrono::nanoseconds budget = spin_.NextBudget();
  if (budget.count() > 0) {
    const Clock::time_point spin_end = std::min(start + budget, deadline);
    SpinRhythm rhythm(kLooksPerClock);
    do {
      for (int i = 0; i < rhythm.looks(); ++i) {
        if (check(result)) {
          spin_.Learn(true);
          return result;
        }
        Relax();
      }
    } while (rhythm.Yield() < spin_end);
    spin_.Learn(false);
  }
  for (;;) {
    if (check(result)) return result;
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return WaitResult::kTimeout;
    const auto sleep = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline - now);
    segment_.header->completions.Wait(sleep, [&] {
      return HasUndrained() || state_.phase() >= SessionState::Phase::kLost ||
             condition() != WaitResult::kTimeout;
    });
  }
}

bool RingOperations::WaitForRoom(const OperationEnd& /*end*/) {
  const auto condition = [this] {
    return in_flight() < capacity_ ? WaitResult::kDone : WaitResult::kTimeout;
  };
  return WaitFor(condition, Clock::time_point::max()) == WaitResult::kDone;
}

WaitResult RingOperations::Wait(std::uint64_t sequence, Clock::time_point deadline) {
  std::optional<OperationEnd> end = BeginFetch(sequence);
  if (!end.has_value()) {
    return WaitFor([this, sequence] { return Look(sequence); }, deadline, trace_, sequence);
  }
  const auto look = [&] {
    copies_.CopyOut(*end);
    return Look(sequence);
  };
  const WaitResult result = WaitFor(look, deadline, trace_, sequence);
  EndFetch(sequence, *end);
  return result;
}

std::optional<OperationEnd> RingOperations::BeginFetch(std::uint64_t sequence) {
  if (in_pieces_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  MutexLock lock(mutex_);
  Slot* slot = Find(sequence);
  if (slot == nullptr || slot->fetching || !ComesInPieces(slot->end)) return std::nullopt;
  slot->fetching = true;
  return slot->end;
}

void RingOperations::EndFetch(std::uint64_t sequence, const OperationEnd& end) {
  MutexLock lock(mutex_);
  // It is there: nobody consumes what is being fetched.
  Slot* slot = Find(sequence);
  slot->end.fetched_pieces = end.fetched_pieces;
  slot->fetching = false;
}

WaitResult RingOperations::Test(std::uint64_t sequence) {
  DrainIfAny();
  const WaitResult result = Look(sequence);
  if (result == WaitResult::kTimeout && state_.GivenUp()) return WaitResult::kEnded;
  // Whoever knows that it is done may submit what depends on it.
  if (result == WaitResult::kDone) seen_end_.store(true, std::memory_order_relaxed);
  return result;
}

bool RingOperations::Consume(std::uint64_t sequence, OperationOutcome& outcome, OperationEnd& end) {
  for (;; std::this_thread::yield()) {
    MutexLock lock(mutex_);
    Slot* slot = Find(sequence);
    if (slot == nullptr) return false;
    // Another thread waits for it and copies a piece. It has ended for that one, too.
    if (slot->fetching) continue;
    const std::uint64_t word = WordOf(*slot, sequence);
    if (IsInFlight(word, sequence)) {
      in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
      if (ComesInPieces(slot->end)) in_pieces_.fetch_sub(1, std::memory_order_relaxed);
    }
    seen_end_.store(true, std::memory_order_relaxed);
    outcome = std::move(slot->outcome);
    if (word == Word(sequence, kDone, true)) outcome.completed = true;
    end = slot->end;
    slot->outcome = {};
    Free(*slot, sequence);
    return true;
  }
}

std::size_t RingOperations::ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                                             std::vector<OperationEnd>& ends) {
  MutexLock lock(mutex_);
  Drain();
  std::size_t count = 0;
  for (;;) {
    count += ConsumePlain(sequences.subspan(count));
    if (count == sequences.size()) break;
    const std::uint64_t sequence = sequences[count];
    Slot* slot = Find(sequence);
    if (slot == nullptr || IsInFlight(WordOf(*slot, sequence), sequence)) break;
    if (!IsPlain(WordOf(*slot, sequence))) {
      if (slot->outcome.status != 0 || slot->fetching) break;
      slot->outcome.completed = false;
      ends.push_back(slot->end);
    }
    Free(*slot, sequence);
    ++count;
  }
  if (count > 0) seen_end_.store(true, std::memory_order_relaxed);
  return count;
}

void RingOperations::Free(Slot& slot, std::uint64_t sequence) {
  if (&slot == &SlotOf(sequence)) {
    PlaceOf(sequence).store(Word(sequence, kFree), std::memory_order_release);
  } else {
    stragglers_.erase(sequence);
  }
}

const Registration* RingOperations::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  MutexLock lock(mutex_);
  Drain();
  for (std::uint64_t place = 0; place < slots_.size(); ++place) {
    if (StateOf(PlaceOf(place).load(std::memory_order_relaxed)) == kFree) continue;
    const Registration* const used = slots_[place].end.registration;
    if (registrations.contains(used)) return used;
  }
  for (const auto& [sequence, straggler] : stragglers_) {
    if (registrations.contains(straggler->end.registration)) return straggler->end.registration;
  }
  return nullptr;
}

void RingOperations::WakeAll() noexcept { segment_.header->completions.Ring(); }

}  // namespace ringd::client
