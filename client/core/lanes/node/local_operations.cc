#include "client/core/lanes/node/local_operations.h"

#include <algorithm>
#include <utility>

#include "client/core/waiting/relax.h"

namespace ringd::client {
namespace {

// Every sleep is bounded, so that a lost wake-up or a silent end delays and never hangs.
constexpr std::chrono::milliseconds kLongestSleep{100};
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
                                 DirectReading reading, Staging* staging, const TraceWriter& trace)
    : OperationQueue(capacity),
      memory_(memory),
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
      in_flight_index_(segment_, self_),
      table_mask_(capacity - 1),
      table_(capacity),
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
  TraceEvent event;
  event.at_ns = at_ns;
  event.value = value;
  event.sequence = static_cast<std::uint32_t>(traced.occurrence);
  event.tensor = traced.tensor;
  event.stage = stage;
  event.detail = static_cast<std::uint16_t>(status);
  trace_.Write(event);
}

void LocalOperations::TraceSince(TraceStage stage, const Traced& traced,
                                 std::uint64_t begin_ns) noexcept {
  const std::uint64_t now_ns = MonotonicNanos();
  const MutexLock lock(mutex_);
  Trace(stage, traced, now_ns, now_ns - begin_ns);
}

LocalOperations::Operation* LocalOperations::Find(std::uint64_t sequence) {
  Operation* const operation = table_[sequence & table_mask_].load(std::memory_order_acquire);
  if (operation != nullptr && operation->sequence.load(std::memory_order_relaxed) == sequence &&
      ResultOf(WordOf(*operation, sequence), sequence) != WaitResult::kUnknown) {
    return operation;
  }
  MutexLock lock(mutex_);
  return FindLocked(sequence);
}

LocalOperations::Operation* LocalOperations::FindLocked(std::uint64_t sequence) {
  const std::uint64_t word = PlaceOf(sequence).load(std::memory_order_relaxed);
  if (ResultOf(word, sequence) != WaitResult::kUnknown) {
    return table_[sequence & table_mask_].load(std::memory_order_relaxed);
  }
  const auto straggler = stragglers_.find(sequence);
  return straggler == stragglers_.end() ? nullptr : straggler->second;
}

WaitResult LocalOperations::Look(const Operation& operation,
                                 std::uint64_t sequence) const noexcept {
  return ResultOf(WordOf(operation, sequence), sequence);
}

// Calls work(foreign) again and again, which says whether it found something to do, until done(),
// the end of the context, or `deadline`: false. Spins first, then sleeps at most `first_sleep`, if
// that is not 0, and until then leaves foreign chunks; then `longest_sleep` at a time.
template <typename Done, typename Work>
bool LocalOperations::WaitUntil(Done done, Work work, std::chrono::nanoseconds first_sleep,
                                std::chrono::nanoseconds longest_sleep, Clock::time_point deadline,
                                const Traced* traced) {
  // To be asked after work that has taken its time.
  const auto is_late = [&] {
    return deadline != Clock::time_point::max() && Clock::now() >= deadline;
  };
  // The common case costs no clock and tells nobody.
  const int quick_looks = spin_.enabled() ? kQuickLooks : 1;
  for (int i = 0; i < quick_looks; ++i) {
    const bool worked = work(Foreign::kLeave);
    if (done()) return true;
    if (worked && is_late()) break;
    Relax();
  }
  const Presence presence = WhileWaiting();
  const NotedWait noted(*this, traced);

  const std::chrono::nanoseconds budget = spin_.NextBudget();
  if (budget.count() > 0) {
    Clock::time_point now = Clock::now();
    Clock::time_point spin_end = std::min(now + budget, deadline);
    SpinRhythm rhythm(kLooksPerClock);
    do {
      bool worked = false;
      for (int i = 0; i < rhythm.looks(); ++i) {
        const bool found = work(Foreign::kLeave);
        if (done()) {
          spin_.Learn(true);
          return true;
        }
        worked = worked || found;
        if (found && is_late()) break;
        Relax();
      }
      if (!state_.alive()) return false;
      now = rhythm.Yield();
      if (worked) spin_end = std::min(now + budget, deadline);
    } while (now < spin_end);
    spin_.Learn(false);
  }
  Foreign foreign = first_sleep.count() > 0 ? Foreign::kLeave : Foreign::kTake;
  Clock::time_point idle_since = Clock::now();
  for (;;) {
    bool worked = false;
    do {
      if (!work(foreign)) break;
      worked = true;
    } while (!is_late());
    if (done()) return true;
    if (!state_.alive()) return false;
    const Clock::time_point now = Clock::now();
    // Who only glances takes them, too: they might never be taken.
    if (now >= deadline) return foreign == Foreign::kLeave && work(Foreign::kTake) && done();
    if (worked) idle_since = now;
    const bool may_publish = AnyPutOff();
    const std::chrono::nanoseconds patience =
        foreign == Foreign::kLeave ? first_sleep : kPublishSleep;
    const std::chrono::nanoseconds most =
        foreign == Foreign::kLeave || may_publish ? patience : longest_sleep;
    bool found = false;
    own_state_.doorbell.Wait(std::min<std::chrono::nanoseconds>(most, deadline - now), [&] {
      found = work(foreign);
      return found || done() || !state_.alive() || (!may_publish && AnyPutOff());
    });
    const Clock::time_point awake = Clock::now();
    if (found) idle_since = awake;
    // Somebody may have rung long before.
    if (awake - idle_since < patience) continue;
    if (may_publish && foreign == Foreign::kTake) WidenStagedWindow();
    foreign = Foreign::kTake;
    idle_since = awake;
  }
}

WaitResult LocalOperations::Wait(std::uint64_t sequence, Clock::time_point deadline) {
  Operation* const operation = Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  WaitResult result = WaitResult::kTimeout;
  const auto done = [&] {
    result = Look(*operation, sequence);
    return result != WaitResult::kTimeout;
  };
  const Traced traced{operation->tensor.load(std::memory_order_relaxed)->number,
                      operation->occurrence.load(std::memory_order_relaxed)};
  // What travels in its slot has no chunks: see IsTraced().
  const bool is_traced = operation->chunk_count.load(std::memory_order_relaxed) != 0;
  // Of a burst: the other ranks, too, have others to go on with.
  const bool leaves = in_flight() > 1;
  const auto work = [&](Foreign foreign) {
    return Look(*operation, sequence) == WaitResult::kTimeout &&
           WorkFor(*operation, sequence, leaves ? foreign : Foreign::kTake);
  };
  if (done() || WaitUntil(done, work, leaves ? kForeignPatience : std::chrono::microseconds(0),
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

bool LocalOperations::WaitForRoom(const OperationEnd& end) {
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
      if (head < tensor.posted) {
        operation = tensor.pending[head % kOccurrencesInFlight];
        sequence = operation->sequence.load(std::memory_order_relaxed);
      } else if (operation = OldestInFlight(oldest); operation != nullptr) {
        sequence = oldest = operation->sequence.load(std::memory_order_relaxed);
      }
    }
    return operation != nullptr ? WorkFor(*operation, sequence, foreign) : PublishNext(0);
  };
  return done() || WaitUntil(done, work, std::chrono::nanoseconds(0), kRoomSleep,
                             Clock::time_point::max(), nullptr);
}

LocalOperations::Operation* LocalOperations::OldestInFlight(std::uint64_t from) {
  if (next_sequence_ > capacity_) from = std::max(from, next_sequence_ - capacity_);
  for (std::uint64_t sequence = from; sequence < next_sequence_; ++sequence) {
    if (IsInFlight(PlaceOf(sequence).load(std::memory_order_relaxed), sequence)) {
      return table_[sequence & table_mask_].load(std::memory_order_relaxed);
    }
  }
  return nullptr;
}

bool LocalOperations::Consume(std::uint64_t sequence, OperationOutcome& outcome,
                              OperationEnd& end) {
  MutexLock lock(mutex_);
  CountConsumed(1);
  if (ConsumePlain({&sequence, 1}) == 1) {
    ReleasePlace(sequence);
    outcome.completed = true;
    return true;
  }
  Operation* const operation = FindLocked(sequence);
  if (operation == nullptr) return false;
  if (IsInFlight(WordOf(*operation, sequence), sequence)) {
    // The context has ended: the operation stays pending for its tensor, and is used no more.
    outcome = {};
    end = operation->end;
    SetWord(*operation, Word(sequence, kFree));
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return true;
  }
  outcome = std::move(operation->outcome);
  operation->outcome = {};
  end = EndOf(*operation);
  Free(*operation, sequence);
  return true;
}

std::size_t LocalOperations::ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                                              std::vector<OperationEnd>& ends) {
  MutexLock lock(mutex_);
  std::size_t count = 0;
  for (;;) {
    const std::span<const std::uint64_t> left = sequences.subspan(count);
    const std::span<const std::uint64_t> plain = left.first(ConsumePlain(left));
    for (const std::uint64_t sequence : plain) ReleasePlace(sequence);
    count += plain.size();
    if (count == sequences.size()) break;
    const std::uint64_t sequence = sequences[count];
    Operation* const operation = FindLocked(sequence);
    if (operation == nullptr || IsInFlight(WordOf(*operation, sequence), sequence)) break;
    if (!IsPlain(WordOf(*operation, sequence))) {
      if (operation->outcome.status != 0) break;
      operation->outcome.completed = false;
      ends.push_back(EndOf(*operation));
    }
    Free(*operation, sequence);
    ++count;
  }
  CountConsumed(count);
  return count;
}

const Registration* LocalOperations::FindUsed(
    const std::unordered_set<const Registration*>& registrations) {
  MutexLock lock(mutex_);
  for (std::uint64_t place = 0; place <= table_mask_; ++place) {
    if (StateOf(PlaceOf(place).load(std::memory_order_relaxed)) == kFree) continue;
    const Operation* const operation = table_[place].load(std::memory_order_relaxed);
    if (registrations.contains(operation->registration)) return operation->registration;
  }
  for (const auto& [sequence, straggler] : stragglers_) {
    if (registrations.contains(straggler->registration)) return straggler->registration;
  }
  return nullptr;
}

void LocalOperations::CountConsumed(std::uint64_t count) noexcept {
  consumed_.store(consumed_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

OperationEnd LocalOperations::EndOf(const Operation& operation) noexcept {
  OperationEnd end = operation.end;
  end.written_chunks = operation.written_chunks.load(std::memory_order_relaxed);
  return end;
}

std::uint64_t LocalOperations::WordOf(const Operation& operation,
                                      std::uint64_t sequence) const noexcept {
  const std::uint64_t word = PlaceOf(sequence).load(std::memory_order_acquire);
  return SequenceOf(word) == sequence ? word : operation.word.load(std::memory_order_acquire);
}

void LocalOperations::SetWord(Operation& operation, std::uint64_t word) {
  const std::uint64_t sequence = SequenceOf(word);
  const bool in_place =
      table_[sequence & table_mask_].load(std::memory_order_relaxed) == &operation;
  (in_place ? PlaceOf(sequence) : operation.word).store(word, std::memory_order_release);
}

void LocalOperations::Free(Operation& operation, std::uint64_t sequence) {
  SetWord(operation, Word(sequence, kFree));
  if (table_[sequence & table_mask_].load(std::memory_order_relaxed) == &operation) {
    ReleasePlace(sequence);
  } else {
    stragglers_.erase(sequence);
    free_.push_back(&operation);
  }
}

void LocalOperations::ReleasePlace(std::uint64_t sequence) {
  std::atomic<Operation*>& place = table_[sequence & table_mask_];
  free_.push_back(place.load(std::memory_order_relaxed));
  place.store(nullptr, std::memory_order_relaxed);
}

void LocalOperations::WakeAll() noexcept { own_state_.doorbell.Ring(); }

}  // namespace ringd::client
