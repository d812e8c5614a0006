#include "client/core/local/local_operations.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/core/tensors/local_chunks.h"
#include "client/core/waiting/relax.h"

namespace ringd::client {
namespace {

// Every sleep is bounded, so that a lost wake-up or a silent end delays and never hangs.
constexpr std::chrono::milliseconds kLongestSleep{100};
// Nobody rings for room.
constexpr std::chrono::milliseconds kRoomSleep{1};
// Looks before the clock is read for the first time: about two microseconds.
constexpr int kQuickLooks = 128;
// Looks between two readings of the clock.
constexpr int kLooksPerClock = 64;

}  // namespace

LocalOperations::LocalOperations(const JobMemory& memory, std::uint32_t capacity,
                                 SessionState& state, std::chrono::nanoseconds spin_budget,
                                 DirectReading reading)
    : OperationQueue(capacity),
      memory_(memory),
      segment_(memory.segment()),
      self_(memory.self()),
      member_count_(memory.segment().member_count()),
      capacity_(capacity),
      state_(state),
      spin_(spin_budget),
      own_state_(segment_.Member(self_)),
      direct_reads_(segment_, self_, reading),
      table_mask_(capacity - 1),
      table_(capacity),
      scratch_bytes_(ScratchBytes(member_count_)) {}

LocalOperations::~LocalOperations() = default;

// ---- submitting

SubmitResult LocalOperations::SubmitInline(Registration& registration, const void* source,
                                           void* destination, std::uint64_t& sequence) {
  OperationEnd end;
  end.registration = &registration;
  // The root of a broadcast gets its own values, too, unless they are there already.
  const bool writes = registration.receives || destination != source;
  return Post(registration, end, registration.sends ? source : nullptr,
              writes ? destination : nullptr, Submission{}, sequence);
}

SubmitResult LocalOperations::TrySubmit(Submission& record, const OperationEnd& end) {
  return Post(*end.registration, end, nullptr, nullptr, record, record.sequence);
}

SubmitResult LocalOperations::Post(Registration& registration, const OperationEnd& end,
                                   const void* inline_source, void* inline_destination,
                                   const Submission& record, std::uint64_t& sequence) {
  if (!state_.alive()) return SubmitResult::kEnded;
  const std::uint32_t number = registration.numbers.tensor;
  const bool is_inline = IsInline(registration);
  std::uint64_t occurrence = 0;
  Operation* operation = nullptr;
  {
    MutexLock lock(mutex_);
    Tensor& tensor = TensorOf(number);
    if (in_flight_.load(std::memory_order_relaxed) >= capacity_ || !HasRoom(tensor)) {
      return SubmitResult::kFull;
    }
    occurrence = tensor.posted;
    sequence = next_sequence_++;
    operation = &TakeOperation(sequence);
    operation->tensor.store(&tensor, std::memory_order_relaxed);
    operation->occurrence.store(occurrence, std::memory_order_relaxed);
    operation->chunk_count.store(is_inline ? 0 : ChunkCount(registration.bytes),
                                 std::memory_order_relaxed);
    operation->written_chunks.store(0, std::memory_order_relaxed);
    operation->registration = &registration;
    operation->inline_destination = inline_destination;
    operation->end = end;
    PlaceOf(sequence).store(Word(sequence, kInFlight, end.IsNothing()), std::memory_order_release);
    tensor.pending[occurrence % kOccurrencesInFlight] = operation;
    tensor.posted = occurrence + 1;

    SubmissionSlot& slot = segment_.Slot(number, self_, occurrence);
    slot.source_offset = record.source_offset;
    slot.source_place = end.split_source ? SourcePlace::kSplit : SourcePlace::kArena;
    if (end.split_source) {
      slot.ordinary_source = reinterpret_cast<std::uintptr_t>(end.direct_source);
    }
    slot.destination_offset = record.destination_offset;
    slot.meta_id = registration.numbers.meta;
    if (is_inline && inline_source != nullptr) {
      std::memcpy(slot.data, inline_source, registration.bytes);
    }
    // From here on the others may read the slot and the tensor.
    slot.occurrence.store(occurrence + 1, std::memory_order_release);
    own_state_.posted.store(own_state_.posted.load(std::memory_order_relaxed) + 1,
                            std::memory_order_relaxed);
    in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // Pairs with the fence of a sleeping waiter: our slot before, the looks at the others after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (HasArrived(number, occurrence)) {
    if (!is_inline && registration.bytes <= kAtOnceBytes) Advance(*operation, sequence);
    RingSleepers();
  }
  if (registration.bytes >= kBackgroundFromBytes &&
      submitted_.sleepers.load(std::memory_order_relaxed) != 0) {
    WakeBackground();
  }
  return SubmitResult::kOk;
}

LocalOperations::Tensor& LocalOperations::TensorOf(std::uint32_t number) {
  if (number >= tensors_.size()) tensors_.resize(number + 1);
  std::unique_ptr<Tensor>& tensor = tensors_[number];
  if (tensor == nullptr) tensor = std::make_unique<Tensor>(number);
  return *tensor;
}

bool LocalOperations::HasRoom(Tensor& tensor) {
  if (tensor.posted < tensor.room_until) return true;
  EndInOrder(tensor);
  std::uint64_t ended = tensor.ended.load(std::memory_order_relaxed);
  for (std::uint32_t m = 0; m < member_count_; ++m) {
    if (m == self_) continue;
    ended = std::min(ended, segment_.Ended(tensor.number, m).load(std::memory_order_acquire));
  }
  tensor.room_until = ended + kOccurrencesInFlight;
  return tensor.posted < tensor.room_until;
}

LocalOperations::Operation& LocalOperations::TakeOperation(std::uint64_t sequence) {
  if (free_.empty()) free_.push_back(&operations_.emplace_back());
  Operation* const operation = free_.back();
  free_.pop_back();
  std::atomic<Operation*>& place = table_[sequence & table_mask_];
  if (Operation* const before = place.load(std::memory_order_relaxed); before != nullptr) {
    // Who sees the place with its next word finds the one before there.
    before->word.store(PlaceOf(sequence).load(std::memory_order_relaxed),
                       std::memory_order_release);
    stragglers_.emplace(before->sequence.load(std::memory_order_relaxed), before);
  }
  operation->sequence.store(sequence, std::memory_order_relaxed);
  place.store(operation, std::memory_order_release);
  return *operation;
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

// ---- waiting

WaitResult LocalOperations::Look(const Operation& operation,
                                 std::uint64_t sequence) const noexcept {
  return ResultOf(WordOf(operation, sequence), sequence);
}

// Calls work() again and again, which says whether it found something to do, until done(), the end of the
// context, or `deadline`: false. Spins first, then sleeps at most `longest_sleep` at a time.
template <typename Done, typename Work>
bool LocalOperations::WaitUntil(Done done, Work work, std::chrono::nanoseconds longest_sleep,
                                Clock::time_point deadline) {
  // The common case costs no clock and tells nobody.
  const int quick_looks = spin_.enabled() ? kQuickLooks : 1;
  for (int i = 0; i < quick_looks; ++i) {
    work();
    if (done()) return true;
    Relax();
  }
  const Presence presence = WhileWaiting();

  const std::chrono::nanoseconds budget = spin_.NextBudget();
  if (budget.count() > 0) {
    Clock::time_point now = Clock::now();
    Clock::time_point spin_end = std::min(now + budget, deadline);
    SpinRhythm rhythm(kLooksPerClock);
    do {
      bool worked = false;
      for (int i = 0; i < rhythm.looks(); ++i) {
        worked = work() || worked;
        if (done()) {
          spin_.Learn(true);
          return true;
        }
        Relax();
      }
      if (!state_.alive()) return false;
      now = rhythm.Yield();
      if (worked) spin_end = std::min(now + budget, deadline);
    } while (now < spin_end);
    spin_.Learn(false);
  }
  for (;;) {
    while (work()) {
    }
    if (done()) return true;
    const Clock::time_point now = Clock::now();
    if (!state_.alive() || now >= deadline) return false;
    own_state_.doorbell.Wait(std::min<std::chrono::nanoseconds>(longest_sleep, deadline - now),
                             [&] { return work() || done() || !state_.alive(); });
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
  const auto work = [&] {
    if (Look(*operation, sequence) != WaitResult::kTimeout || !MayAdvance(*operation)) return false;
    return Advance(*operation, sequence);
  };
  if (done() || WaitUntil(done, work, kLongestSleep, deadline)) return result;
  if (state_.alive()) return WaitResult::kTimeout;
  Quieten(*operation);
  work();  // It may have come to its end after all.
  return done() ? result : WaitResult::kEnded;
}

WaitResult LocalOperations::Test(std::uint64_t sequence) {
  Operation* const operation = Find(sequence);
  if (operation == nullptr) return WaitResult::kUnknown;
  if (MayAdvance(*operation)) Advance(*operation, sequence);
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
  const auto work = [&] {
    Operation* operation = nullptr;
    {
      MutexLock lock(mutex_);
      Tensor& tensor = TensorOf(number);
      const std::uint64_t head = tensor.ended.load(std::memory_order_relaxed);
      if (head < tensor.posted) {
        operation = tensor.pending[head % kOccurrencesInFlight];
      } else {
        operation = OldestInFlight(oldest);
      }
      if (operation == nullptr) return false;
      oldest = operation->sequence.load(std::memory_order_relaxed);
    }
    return MayAdvance(*operation) && Advance(*operation, oldest);
  };
  return done() || WaitUntil(done, work, kRoomSleep, Clock::time_point::max());
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
  return count;
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
