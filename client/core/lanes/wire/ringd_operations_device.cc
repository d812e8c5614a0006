// What a queue of operations knows of those on tensors in device memory: their timeline's pairs;
// and what it does for those that somebody copies to the arena in pieces.
#include <vector>

#include "absl/status/status.h"
#include "client/core/lanes/wire/ringd_operations.h"
#include "client/core/tensors/registrations.h"

namespace ringd::client {

std::uint32_t RingdOperations::TimelinePairOf(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  Drain();
  const Operation* const operation = table_.Find(sequence);
  const bool in_flight =
      operation != nullptr && IsInFlight(places_.WordOf(*operation, sequence), sequence);
  return in_flight ? operation->end.timeline_pair : kNoTimelinePair;
}

DeviceBlock* RingdOperations::DeviceBlockOf(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  const Operation* const operation = table_.Find(sequence);
  return operation == nullptr ? nullptr : operation->end.device_block;
}

std::vector<std::uint32_t> RingdOperations::TimelinePairsOfUnfulfilled() {
  MutexLock lock(mutex_);
  Drain();
  std::vector<std::uint32_t> pairs(released_pairs_.begin(), released_pairs_.end());
  table_.ForEach([&pairs](const Operation& operation, std::uint64_t word) {
    const std::uint32_t pair = operation.end.timeline_pair;
    if (StateOf(word) == kInFlight && pair != kNoTimelinePair) pairs.push_back(pair);
  });
  return pairs;
}

absl::StatusOr<StagedCopies::InPieces> RingdOperations::SubmitInPieces(Registration& tensor,
                                                                       std::uint64_t offset) {
  OperationEnd end;
  end.registration = &tensor;
  end.progress = copies_.TakeRecord();
  if (end.progress == kNoProgress) return absl::UnavailableError("all records are in use");
  Submission record{};
  record.registration = tensor.numbers.registration;
  record.element_count = tensor.element_count;
  record.source_offset = record.destination_offset = offset;
  record.flags = (tensor.sends ? std::uint32_t{kSourceInPieces} : 0) |
                 (tensor.receives ? std::uint32_t{kResultInPieces} : 0);
  record.progress = end.progress;
  const SubmitResult result = TrySubmit(record, end);
  if (result == SubmitResult::kOk) return StagedCopies::InPieces{record.sequence, end.progress};
  copies_.GiveBackRecord(end.progress);
  if (result == SubmitResult::kFull) return absl::ResourceExhaustedError("there is no room");
  return state_.status();
}

void RingdOperations::TellPiece(std::uint32_t progress, std::uint32_t piece) {
  copies_.TellPiece(progress, piece);
  RingEngine();
}

bool RingdOperations::IsReleased(std::uint32_t timeline_pair) {
  MutexLock lock(mutex_);
  return released_pairs_.contains(timeline_pair);
}

}  // namespace ringd::client
