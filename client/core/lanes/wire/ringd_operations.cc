#include "client/core/lanes/wire/ringd_operations.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/core/tensors/ordered_descriptions.h"
#include "client/core/waiting/relax.h"
#include "client/core/waiting/wait_loop.h"

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

RingdOperations::RingdOperations(const SessionSegmentView& segment,
                                 std::uint32_t submission_capacity,
                                 std::uint32_t completion_capacity, UniqueFd engine_wakeup,
                                 SessionState& state, StagedCopies& copies,
                                 std::chrono::nanoseconds spin_budget)
    : segment_(segment),
      capacity_(submission_capacity),
      engine_wakeup_(std::move(engine_wakeup)),
      state_(state),
      copies_(copies),
      spin_(spin_budget),
      places_(submission_capacity),
      submissions_(segment.submission_cursors, segment.submissions, submission_capacity),
      completions_(segment.completion_cursors, segment.completions, completion_capacity) {}

SubmitResult RingdOperations::TrySubmit(Submission& record, const OperationEnd& end) {
  if (!state_.alive()) return SubmitResult::kEnded;
  record.submitted_ns = MonotonicNanos();
  {
    MutexLock lock(mutex_);
    if (in_flight_.load(std::memory_order_relaxed) >= capacity_) {
      Drain();
      if (in_flight_.load(std::memory_order_relaxed) >= capacity_) return SubmitResult::kFull;
    }
    const std::uint64_t sequence = next_sequence_.load(std::memory_order_relaxed);
    Operation& operation = table_.Take(sequence);
    record.sequence = sequence;
    const bool follows_wait = seen_end_.load(std::memory_order_relaxed);
    record.flags &= ~std::uint32_t{kFollowsWait};
    if (follows_wait) record.flags |= kFollowsWait;
    // First the operation, then the record: the completion may come before this thread goes on.
    operation.end = end;
    if (end.by_order && end.registration->is_scaled) {
      segment_.ScalesOf(sequence) = OrderedDescriptions::ScalesOf(*end.registration);
    }
    table_.SetWordAt(Word(sequence, kInFlight, end.IsNothing()));
    switch (submissions_.TryPush(record)) {
      case RingResult::kOk:
        break;
      case RingResult::kFull:
        // ringd has completed what it never took from the ring: not by the rules, but harmless.
        table_.Free(operation, sequence);
        return SubmitResult::kFull;
      default:
        table_.Free(operation, sequence);
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

void RingdOperations::CopySource(const OperationEnd& end) {
  copies_.CopyIn(end, [this] {
    RingEngine();
    // Where there are more who want to run than processors, what sends the piece goes first.
    std::this_thread::yield();
  });
}

void RingdOperations::RingEngine() noexcept {
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

bool RingdOperations::HasUndrained() const noexcept {
  // Acquire pairs with ringd's release when it publishes completions.
  return segment_.completion_cursors->produced.load(std::memory_order_acquire) !=
         drained_.load(std::memory_order_acquire);
}

void RingdOperations::DrainIfAny() {
  if (!HasUndrained()) return;
  MutexLock lock(mutex_);
  Drain();
}

void RingdOperations::Drain() {
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

void RingdOperations::Accept(const CompletionRecord& record) {
  Operation* const operation = record.sequence < next_sequence_.load(std::memory_order_relaxed)
                                   ? table_.Find(record.sequence)
                                   : nullptr;
  const std::uint64_t word = operation == nullptr ? 0 : places_.WordOf(*operation, record.sequence);
  if (operation == nullptr || !IsInFlight(word, record.sequence)) {
    // After a failure a waiter may have given up on an operation whose end comes only now.
    if (state_.alive()) {
      state_.Lose(absl::InternalError(
          absl::StrCat("ringd completed operation ", record.sequence, ", which is not in flight")));
    }
    return;
  }
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  if (record.status == 0 && IsPlain(word)) {
    table_.SetWord(*operation, Word(record.sequence, kDone, true));
    return;
  }
  operation->outcome.completed = true;
  operation->outcome.status = record.status;
  operation->outcome.text = record.status == 0 ? nullptr : TextOf(record);
  if (record.status != 0 && operation->end.timeline_pair != kNoTimelinePair) {
    released_pairs_.insert(operation->end.timeline_pair);
  }
  if (ComesInPieces(operation->end)) in_pieces_.fetch_sub(1, std::memory_order_relaxed);
  table_.SetWord(*operation, Word(record.sequence, kDone));
}

std::shared_ptr<const std::string> RingdOperations::TextOf(const CompletionRecord& record) {
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

WaitResult RingdOperations::Look(std::uint64_t sequence) {
  const WaitResult result = ResultOf(places_.WordAt(sequence, std::memory_order_acquire), sequence);
  if (result != WaitResult::kUnknown) return result;
  if (sequence >= next_sequence_.load(std::memory_order_acquire)) return WaitResult::kUnknown;
  MutexLock lock(mutex_);
  const Operation* const operation = table_.Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  return ResultOf(places_.WordOf(*operation, sequence), sequence);
}

// Waits until `condition` says anything but kTimeout, which is "not yet".
template <typename Condition>
class RingdOperations::Waiter {
 public:
  // `trace`: where a wait for operation `sequence` is noted if it lasts; null: nowhere.
  Waiter(RingdOperations& operations, Condition condition, TraceSink* trace, std::uint64_t sequence)
      : operations_(operations), condition_(condition), trace_(trace), sequence_(sequence) {}

  WaitResult result() const noexcept { return result_; }

  Looked Look() {
    if (HasCome()) return Looked::kDone;
    const SessionState& state = operations_.state_;
    if (state.alive() || !state.GivenUp()) return Looked::kNothing;
    // A completion may have arrived between the look and the end.
    if (!HasCome()) result_ = WaitResult::kEnded;
    return Looked::kDone;
  }
  // Look says so if not.
  static bool GoesOn() noexcept { return true; }
  TracedWait BeginWaiting() const noexcept { return {trace_, sequence_}; }
  static void BeginSleeping() noexcept {}
  static bool LookLast() noexcept { return false; }
  void Sleep(Clock::time_point now, Clock::time_point deadline, bool /*worked*/) {
    const auto most = std::min<std::chrono::nanoseconds>(kLongestSleep, deadline - now);
    operations_.segment_.header->completions.Wait(most, [&] {
      return operations_.HasUndrained() ||
             operations_.state_.phase() >= SessionState::Phase::kLost ||
             condition_() != WaitResult::kTimeout;
    });
  }

 private:
  bool HasCome() {
    operations_.DrainIfAny();
    result_ = condition_();
    return result_ != WaitResult::kTimeout;
  }

  RingdOperations& operations_;
  const Condition condition_;
  TraceSink* const trace_;
  const std::uint64_t sequence_;
  WaitResult result_ = WaitResult::kTimeout;
};

template <typename Condition>
WaitResult RingdOperations::WaitFor(SpinPolicy& spin, Condition condition,
                                    Clock::time_point deadline, TraceSink* trace,
                                    std::uint64_t sequence) {
  Waiter<Condition> waiter(*this, condition, trace, sequence);
  WaitLoop loop(spin, waiters_, {.looks_per_clock = kLooksPerClock});
  return loop.Run(waiter, deadline) ? waiter.result() : WaitResult::kTimeout;
}

bool RingdOperations::WaitForRoom(const OperationEnd& /*end*/, Clock::time_point deadline) {
  const auto condition = [this] {
    return in_flight() < capacity_ ? WaitResult::kDone : WaitResult::kTimeout;
  };
  return WaitFor(spin_, condition, deadline) != WaitResult::kEnded;
}

WaitResult RingdOperations::WaitUnnoted(std::uint64_t sequence, Clock::time_point deadline) {
  SpinPolicy none;
  return WaitFor(
      none, [this, sequence] { return Look(sequence); }, deadline);
}

WaitResult RingdOperations::Wait(std::uint64_t sequence, Clock::time_point deadline) {
  std::optional<OperationEnd> end = BeginFetch(sequence);
  if (!end.has_value()) {
    return WaitFor(
        spin_, [this, sequence] { return Look(sequence); }, deadline, trace_, sequence);
  }
  const auto look = [&] {
    copies_.CopyOut(*end);
    return Look(sequence);
  };
  const WaitResult result = WaitFor(spin_, look, deadline, trace_, sequence);
  EndFetch(sequence, *end);
  return result;
}

std::optional<OperationEnd> RingdOperations::BeginFetch(std::uint64_t sequence) {
  if (in_pieces_.load(std::memory_order_relaxed) == 0) return std::nullopt;
  MutexLock lock(mutex_);
  Operation* const operation = table_.Find(sequence);
  if (operation == nullptr || operation->fetching || !ComesInPieces(operation->end))
    return std::nullopt;
  operation->fetching = true;
  return operation->end;
}

void RingdOperations::EndFetch(std::uint64_t sequence, const OperationEnd& end) {
  MutexLock lock(mutex_);
  // It is there: nobody consumes what is being fetched.
  Operation* const operation = table_.Find(sequence);
  operation->end.fetched_pieces = end.fetched_pieces;
  operation->fetching = false;
}

WaitResult RingdOperations::Test(std::uint64_t sequence) {
  DrainIfAny();
  const WaitResult result = Look(sequence);
  if (result == WaitResult::kTimeout && state_.GivenUp()) return WaitResult::kEnded;
  // Whoever knows that it is done may submit what depends on it.
  if (result == WaitResult::kDone) seen_end_.store(true, std::memory_order_relaxed);
  return result;
}

bool RingdOperations::Consume(std::uint64_t sequence, OperationOutcome& outcome,
                              OperationEnd& end) {
  for (GivingWay wait;; wait.Pause()) {
    MutexLock lock(mutex_);
    Operation* const operation = table_.Find(sequence);
    if (operation == nullptr) return false;
    // Another thread waits for it and copies a piece. It has ended for that one, too.
    if (operation->fetching) continue;
    const std::uint64_t word = places_.WordOf(*operation, sequence);
    if (IsInFlight(word, sequence)) {
      in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
      if (ComesInPieces(operation->end)) in_pieces_.fetch_sub(1, std::memory_order_relaxed);
    }
    seen_end_.store(true, std::memory_order_relaxed);
    outcome = std::move(operation->outcome);
    if (word == Word(sequence, kDone, true)) outcome.completed = true;
    end = operation->end;
    operation->outcome = {};
    table_.Free(*operation, sequence);
    return true;
  }
}

std::size_t RingdOperations::ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                                              std::vector<OperationEnd>& ends) {
  MutexLock lock(mutex_);
  Drain();
  const auto may_take = [](const Operation& operation) { return !operation.fetching; };
  const auto end_of = [](const Operation& operation) { return operation.end; };
  const std::size_t count = table_.ConsumeSucceeded(sequences, ends, may_take, end_of);
  if (count > 0) seen_end_.store(true, std::memory_order_relaxed);
  return count;
}

const Registration* RingdOperations::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  MutexLock lock(mutex_);
  return table_.FindUsed(registrations);
}

void RingdOperations::WakeAll() noexcept { segment_.header->completions.Ring(); }

}  // namespace ringd::client
