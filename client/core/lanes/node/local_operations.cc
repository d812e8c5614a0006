#include "client/core/lanes/node/local_operations.h"

#include <algorithm>
#include <utility>

#include "client/core/waiting/wait_loop.h"
#include "proto/shm/ordered_operation.h"

namespace ringd::client {
namespace {

// Every sleep is bounded, so that a lost wake-up or a silent end delays and never hangs.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Operations that one who is about to sleep looks at.
constexpr int kMostEndedAsleep = 256;
// Nobody rings for room.
constexpr std::chrono::milliseconds kRoomSleep{1};
// From when on a wait takes foreign chunks: by then the rank that has them at hand is not at work.
constexpr std::chrono::microseconds kForeignPatience{200};
// Before more is published than the window allows: the others may wait for it, and nobody rings for
// that.
constexpr std::chrono::milliseconds kPublishSleep{1};
// Looks before the clock is read for the first time: about two microseconds.
constexpr int kQuickLooks = 128;
// Looks between two readings of the clock.
constexpr int kLooksPerClock = 64;

std::vector<std::int32_t> RanksOf(const JobSegmentView& segment) {
  std::vector<std::int32_t> ranks;
  for (std::uint32_t m = 0; m < segment.member_count(); ++m) {
    ranks.push_back(segment.Member(m).rank);
  }
  return ranks;
}

}  // namespace

LocalOperations::LocalOperations(const JobMemory& memory, std::uint32_t capacity,
                                 SessionState& state, std::chrono::nanoseconds spin_budget,
                                 DirectReading reading, Staging* staging, const TracePlace& trace)
    : memory_(memory),
      segment_(memory.segment()),
      self_(memory.self()),
      member_count_(memory.segment().member_count()),
      capacity_(capacity),
      state_(state),
      spin_(spin_budget),
      ranks_(RanksOf(segment_)),
      own_state_(segment_.Member(self_)),
      direct_reads_(segment_, self_, reading),
      trace_(trace),
      places_(capacity),
      in_flight_index_(segment_, self_),
      staging_(staging),
      scratch_bytes_(ScratchBytes(member_count_)) {}

LocalOperations::~LocalOperations() = default;

// A thread waits as long as this lives.
class LocalOperations::NotedWait {
 public:
  NotedWait(LocalOperations& operations, const Traced* traced) noexcept
      : operations_(operations),
        traced_(traced),
        begin_ns_(traced == nullptr ? 0 : MonotonicNanos()) {}
  ~NotedWait() {
    if (traced_ != nullptr) operations_.TraceSince(TraceStage::kWaited, *traced_, begin_ns_);
  }
  NotedWait(const NotedWait&) = delete;
  NotedWait& operator=(const NotedWait&) = delete;

 private:
  LocalOperations& operations_;
  const Traced* const traced_;
  const std::uint64_t begin_ns_;
};

void LocalOperations::Trace(TraceStage stage, const Traced& traced, std::uint64_t at_ns,
                            std::uint64_t value, std::int32_t status) noexcept {
  if (trace_.sink == nullptr) return;
  TraceEvent event;
  event.at_ns = at_ns;
  event.value = value;
  event.channel = trace_.part.WordOf(0);
  event.sequence = static_cast<std::uint32_t>(traced.occurrence);
  event.tensor = trace_.by_order ? TracedOrdered(OrderedNumberOf(traced.tensor, traced.occurrence))
                                 : traced.tensor;
  event.stage = stage;
  event.detail = static_cast<std::uint16_t>(status);
  trace_.sink->Write(event);
}

std::uint64_t LocalOperations::TraceTime(const Registration& registration) noexcept {
  return registration.bytes < kChunkTracedFromBytes ? trace_clock_.Now() : trace_clock_.ExactNow();
}

void LocalOperations::TraceSince(TraceStage stage, const Traced& traced,
                                 std::uint64_t begin_ns) noexcept {
  // Not before what has been noted already.
  const std::uint64_t now_ns = std::max(MonotonicNanos(), trace_clock_.last());
  Trace(stage, traced, now_ns, now_ns - begin_ns);
}

LocalOperations::Operation* LocalOperations::Find(std::uint64_t sequence) {
  if (Operation* const operation = places_.FindQuickly(sequence)) return operation;
  MutexLock lock(mutex_);
  return table_.Find(sequence);
}

WaitResult LocalOperations::Look(const Operation& operation,
                                 std::uint64_t sequence) const noexcept {
  return ResultOf(places_.WordOf(operation, sequence), sequence);
}

// Calls work(foreign) again and again, which says whether it found something to do, until done() or
// the end of the context. Leaves foreign chunks until it has slept for `first_sleep`, if that is
// not 0; then it sleeps for `longest_sleep` at a time.
template <typename Done, typename Work>
class LocalOperations::Waiter {
 public:
  Waiter(LocalOperations& operations, Done& done, Work& work, std::chrono::nanoseconds first_sleep,
         std::chrono::nanoseconds longest_sleep, const Traced* traced)
      : operations_(operations),
        done_(done),
        work_(work),
        first_sleep_(first_sleep),
        longest_sleep_(longest_sleep),
        traced_(traced) {}

  Looked Look() {
    const bool worked = work_(foreign_);
    if (done_()) return Looked::kDone;
    return worked ? Looked::kWorked : Looked::kNothing;
  }
  bool GoesOn() const noexcept { return operations_.state_.alive(); }
  NotedWait BeginWaiting() const noexcept { return {operations_, traced_}; }
  void BeginSleeping() {
    if (first_sleep_.count() == 0) foreign_ = Foreign::kTake;
    idle_since_ = Clock::now();
  }
  // Who only glances takes foreign chunks, too: they might never be taken.
  bool LookLast() { return foreign_ == Foreign::kLeave && work_(Foreign::kTake) && done_(); }
  void Sleep(Clock::time_point now, Clock::time_point deadline, bool worked) {
    if (worked) idle_since_ = now;
    operations_.EndOthers();
    const bool may_publish = operations_.AnyPutOff();
    const std::chrono::nanoseconds patience =
        foreign_ == Foreign::kLeave ? first_sleep_ : kPublishSleep;
    const std::chrono::nanoseconds most =
        foreign_ == Foreign::kLeave || may_publish ? patience : longest_sleep_;
    bool found = false;
    operations_.own_state_.doorbell.Wait(
        std::min<std::chrono::nanoseconds>(most, deadline - now), [&] {
          found = work_(foreign_);
          return found || done_() || !GoesOn() || (!may_publish && operations_.AnyPutOff());
        });
    const Clock::time_point awake = Clock::now();
    if (found) idle_since_ = awake;
    // Somebody may have rung long before.
    if (awake - idle_since_ < patience) return;
    if (may_publish && foreign_ == Foreign::kTake) operations_.WidenStagedWindow();
    foreign_ = Foreign::kTake;
    idle_since_ = awake;
  }

 private:
  LocalOperations& operations_;
  Done& done_;
  Work& work_;
  const std::chrono::nanoseconds first_sleep_;
  const std::chrono::nanoseconds longest_sleep_;
  const Traced* const traced_;
  Foreign foreign_ = Foreign::kLeave;
  Clock::time_point idle_since_;
};

template <typename Done, typename Work>
bool LocalOperations::WaitUntil(SpinPolicy& spin, Done& done, Work& work,
                                std::chrono::nanoseconds first_sleep,
                                std::chrono::nanoseconds longest_sleep, Clock::time_point deadline,
                                const Traced* traced) {
  Waiter<Done, Work> waiter(*this, done, work, first_sleep, longest_sleep, traced);
  WaitLoop loop(spin, waiters_, {.quick_looks = kQuickLooks, .looks_per_clock = kLooksPerClock});
  return loop.Run(waiter, deadline);
}

WaitResult LocalOperations::WaitWith(SpinPolicy& spin, bool noted, std::uint64_t sequence,
                                     Clock::time_point deadline, bool* taken) {
  Operation* const operation = Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  WaitResult result = WaitResult::kTimeout;
  const auto done = [&] {
    const bool is_taken = taken != nullptr && *taken;
    result = is_taken ? WaitResult::kTaken : Look(*operation, sequence);
    return result != WaitResult::kTimeout;
  };
  const Traced traced{operation->tensor.load(std::memory_order_relaxed)->number,
                      operation->occurrence.load(std::memory_order_relaxed)};
  // What travels in its slot has no chunks: see IsTraced().
  const bool is_traced = noted && operation->chunk_count.load(std::memory_order_relaxed) != 0;
  // Of a burst: the other ranks, too, have others to go on with.
  const bool leaves = in_flight() > 1;
  const auto work = [&](Foreign foreign) {
    return Look(*operation, sequence) == WaitResult::kTimeout &&
           WorkFor(*operation, sequence, leaves ? foreign : Foreign::kTake, taken);
  };
  if (done() ||
      WaitUntil(spin, done, work, leaves ? kForeignPatience : std::chrono::microseconds(0),
                kLongestSleep, deadline, is_traced ? &traced : nullptr)) {
    return result;
  }
  if (state_.alive()) return WaitResult::kTimeout;
  Quieten(*operation);
  work(Foreign::kTake);  // It may have come to its end after all.
  return done() ? result : WaitResult::kEnded;
}

WaitResult LocalOperations::Test(std::uint64_t sequence) {
  Operation* const operation = Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  if (Look(*operation, sequence) == WaitResult::kTimeout) {
    WorkFor(*operation, sequence, Foreign::kTake);
  }
  const WaitResult result = Look(*operation, sequence);
  if (result != WaitResult::kTimeout || state_.alive()) return result;
  return StopReducing() ? WaitResult::kEnded : result;
}

bool LocalOperations::WaitForRoom(const OperationEnd& end, Clock::time_point deadline) {
  const std::uint32_t number = end.registration->numbers.tensor;
  const auto done = [&] {
    MutexLock lock(mutex_);
    return in_flight_.load(std::memory_order_relaxed) < capacity_ && HasRoom(TensorOf(number));
  };
  // The oldest operations end here, too: nobody else may be waiting for them.
  std::uint64_t oldest = 0;
  const auto work = [&](Foreign foreign) {
    Operation* operation = nullptr;
    std::uint64_t sequence = 0;
    {
      MutexLock lock(mutex_);
      Tensor& tensor = TensorOf(number);
      const std::uint64_t head = tensor.ended.load(std::memory_order_relaxed);
      if (head < tensor.posted) operation = tensor.pending[head % kOccurrencesInFlight];
      if (operation == nullptr || !MayAdvance(*operation)) {
        Operation* const first = OldestInFlight(oldest);
        if (first != nullptr) oldest = first->sequence.load(std::memory_order_relaxed);
        // The oldest may wait for a rank that waits for those behind it.
        Operation* const ready = OldestThatMayAdvance(oldest);
        if (ready != nullptr) {
          operation = ready;
        } else if (operation == nullptr) {
          operation = first;
        }
      }
      if (operation != nullptr) sequence = operation->sequence.load(std::memory_order_relaxed);
    }
    return operation != nullptr ? WorkFor(*operation, sequence, foreign) : PublishNext(0);
  };
  return done() ||
         WaitUntil(spin_, done, work, std::chrono::nanoseconds(0), kRoomSleep, deadline, nullptr) ||
         state_.alive();
}

LocalOperations::Operation* LocalOperations::OldestInFlight(std::uint64_t from) {
  for (std::uint64_t sequence = std::max(from, places_.FirstOf(next_sequence_));
       sequence < next_sequence_; ++sequence) {
    if (IsInFlight(places_.WordAt(sequence), sequence)) return places_.EntryAt(sequence);
  }
  return nullptr;
}

void LocalOperations::EndOthers() {
  int left = std::min<int>(kMostEndedAsleep, static_cast<int>(in_flight()));
  if (left < 2) return;
  bool ended = false;
  {
    MutexLock lock(mutex_);
    const auto stragglers = table_.stragglers_in_flight();  // copied: they end
    for (const auto& [sequence, straggler] : stragglers) {
      if (left-- <= 0) break;
      ended = EndInOrder(*straggler->tensor.load(std::memory_order_relaxed)) || ended;
    }
    for (std::uint64_t from = places_.FirstOf(next_sequence_); from < next_sequence_ && left > 0;
         ++from) {
      if (!IsInFlight(places_.WordAt(from), from)) continue;
      --left;
      ended = EndInOrder(*places_.EntryAt(from)->tensor.load(std::memory_order_relaxed)) || ended;
    }
  }
  if (ended && waiters() > 1) own_state_.doorbell.Ring();
}

LocalOperations::Operation* LocalOperations::OldestThatMayAdvance(std::uint64_t from) {
  for (const auto& [sequence, straggler] : table_.stragglers_in_flight()) {
    if (MayAdvance(*straggler)) return straggler;
  }
  for (std::uint64_t sequence = std::max(from, places_.FirstOf(next_sequence_));
       sequence < next_sequence_; ++sequence) {
    if (!IsInFlight(places_.WordAt(sequence), sequence)) continue;
    Operation* const operation = places_.EntryAt(sequence);
    if (MayAdvance(*operation)) return operation;
  }
  return nullptr;
}

bool LocalOperations::Consume(std::uint64_t sequence, OperationOutcome& outcome,
                              OperationEnd& end) {
  MutexLock lock(mutex_);
  CountConsumed(1);
  if (table_.ConsumePlain({&sequence, 1}) == 1) {
    outcome.completed = true;
    return true;
  }
  Operation* const operation = table_.Find(sequence);
  if (operation == nullptr) return false;
  if (IsInFlight(places_.WordOf(*operation, sequence), sequence)) {
    // The context has ended: the operation stays pending for its tensor, and is used no more.
    outcome = {};
    end = operation->end;
    table_.SetWord(*operation, Word(sequence, kFree));
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return true;
  }
  outcome = std::move(operation->outcome);
  operation->outcome = {};
  end = EndOf(*operation);
  table_.Free(*operation, sequence);
  return true;
}

std::size_t LocalOperations::ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                                              std::vector<OperationEnd>& ends) {
  MutexLock lock(mutex_);
  const auto may_take = [](const Operation&) { return true; };
  const std::size_t count = table_.ConsumeSucceeded(sequences, ends, may_take, EndOf);
  CountConsumed(count);
  return count;
}

const Registration* LocalOperations::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  MutexLock lock(mutex_);
  return table_.FindUsed(registrations);
}

void LocalOperations::CountConsumed(std::uint64_t count) noexcept {
  consumed_.store(consumed_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

OperationEnd LocalOperations::EndOf(const Operation& operation) noexcept {
  OperationEnd end = operation.end;
  end.written_chunks = operation.written_chunks.load(std::memory_order_relaxed);
  return end;
}

void LocalOperations::WakeAll() noexcept { own_state_.doorbell.Ring(); }

}  // namespace ringd::client
