// LocalOperations' submissions: room, places and slots.
#include <algorithm>
#include <cstring>

#include "client/core/lanes/node/local_operations.h"
#include "client/core/tensors/local_chunks.h"
#include "client/core/tensors/ordered_descriptions.h"
#include "proto/shm/ordered_operation.h"

namespace ringd::client {

SubmitResult LocalOperations::SubmitInline(Registration& registration, const void* source,
                                           void* destination, std::uint64_t& sequence) {
  OperationEnd end;
  end.registration = &registration;
  end.by_order = registration.ordered != nullptr;
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
  Operation* operation = nullptr;
  std::uint64_t occurrence = 0;
  bool put_off = end.staged_from != nullptr;
  {
    MutexLock lock(mutex_);
    operation = Enlist(registration, end, sequence);
    if (operation == nullptr) return SubmitResult::kFull;
    operation->inline_destination = inline_destination;
    if (IsTraced(registration)) {
      Trace(TraceStage::kSubmitted,
            {registration.numbers.tensor, operation->occurrence.load(std::memory_order_relaxed)},
            TraceTime(registration), registration.bytes);
    }
    // The others see the occurrences of one name in their order.
    put_off = put_off || operation->tensor.load(std::memory_order_relaxed)->put_off != 0;
    if (put_off) {
      PutOff(*operation, record, inline_source);
    } else {
      occurrence = Publish(*operation, record, inline_source);
    }
  }
  if (put_off) {
    // Who waits, or the helper, may have nothing else to do; both look once more before they sleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (waiters() > 0) own_state_.doorbell.Ring();
    if (submitted_.sleepers.load(std::memory_order_relaxed) != 0) WakeBackground();
    return SubmitResult::kOk;
  }
  Announce(*operation, sequence, registration, occurrence);
  return SubmitResult::kOk;
}

LocalOperations::Operation* LocalOperations::Enlist(Registration& registration,
                                                    const OperationEnd& end,
                                                    std::uint64_t& sequence) {
  const bool by_order = registration.ordered != nullptr;
  if (by_order) {
    OrderedDescription word = OrderedDescriptions::WordOf(registration);
    word.root_member = static_cast<std::uint8_t>(MemberOf(registration.description.root_rank));
    word.is_inline = IsInline(registration);
    registration.numbers.meta = word.ToWord();
    registration.numbers.tensor = OrderedPlaceOf(next_ordered_);
  }
  Tensor& tensor = TensorOf(registration.numbers.tensor);
  if (in_flight_.load(std::memory_order_relaxed) >= capacity_ || !HasRoom(tensor)) return nullptr;
  const std::uint64_t occurrence = tensor.posted;
  if (by_order) ++next_ordered_;
  sequence = next_sequence_++;
  Operation& operation = table_.Take(sequence);
  operation.tensor.store(&tensor, std::memory_order_relaxed);
  operation.occurrence.store(occurrence, std::memory_order_relaxed);
  operation.chunk_count.store(IsInline(registration) ? 0 : ChunkCount(registration.bytes),
                              std::memory_order_relaxed);
  operation.written_chunks.store(0, std::memory_order_relaxed);
  operation.registration = &registration;
  operation.end = end;
  table_.SetWordAt(Word(sequence, kInFlight, end.IsNothing()));
  tensor.pending[occurrence % kOccurrencesInFlight] = &operation;
  tensor.posted = occurrence + 1;
  in_flight_.store(in_flight_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  return &operation;
}

std::uint64_t LocalOperations::Publish(Operation& operation, const Submission& record,
                                       const void* inline_source) {
  const Registration& registration = *operation.registration;
  const OperationEnd& end = operation.end;
  const std::uint64_t occurrence = operation.occurrence.load(std::memory_order_relaxed);
  operation.put_off.store(false, std::memory_order_relaxed);
  if (end.staging_offset != kNoStaging) AddStagedBytes(registration.bytes);
  SubmissionSlot& slot = segment_.Slot(registration.numbers.tensor, self_, occurrence);
  slot.source_offset = record.source_offset;
  slot.source_place = end.split_source ? SourcePlace::kSplit : SourcePlace::kArena;
  if (end.split_source) {
    slot.ordinary_source = reinterpret_cast<std::uintptr_t>(end.direct_source);
  }
  slot.destination_offset = record.destination_offset;
  slot.meta_id = registration.numbers.meta;
  if (registration.ordered != nullptr) {
    ElementCountOf(slot, IsInline(registration)) = registration.element_count;
    if (registration.is_scaled) StoreScales(slot, OrderedDescriptions::ScalesOf(registration));
  }
  if (inline_source != nullptr) std::memcpy(slot.data, inline_source, registration.bytes);
  // From here on the others may read the slot and the tensor.
  slot.occurrence.store(occurrence + 1, std::memory_order_release);
  own_state_.posted.store(own_state_.posted.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  Tensor& tensor = *operation.tensor.load(std::memory_order_relaxed);
  tensor.published = occurrence + 1;
  if (tensor.in_flight_place == InFlightIndex::kNoPlace) {
    tensor.in_flight_place = in_flight_index_.Begin({tensor.number, occurrence});
  }
  return occurrence;
}

void LocalOperations::Announce(Operation& operation, std::uint64_t sequence,
                               const Registration& registration, std::uint64_t occurrence) {
  // Pairs with the fence of a sleeping waiter: our slot before, the looks at the others after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (HasArrived(registration.numbers.tensor, occurrence)) {
    if (!IsInline(registration) && registration.bytes <= kAtOnceBytes) {
      Advance(operation, sequence, Foreign::kTake);
    }
    RingSleepers();
  }
  if (registration.bytes >= kBackgroundFromBytes &&
      submitted_.sleepers.load(std::memory_order_relaxed) != 0) {
    WakeBackground();
  }
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

}  // namespace ringd::client
