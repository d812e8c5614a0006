// What a queue of operations knows of those on tensors in device memory: their timeline's pairs.
#include "client/core/lanes/wire/ring_operations.h"

namespace ringd::client {

std::uint32_t RingOperations::TimelinePairOf(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  Drain();
  const Operation* const operation = table_.Find(sequence);
  const bool in_flight =
      operation != nullptr && IsInFlight(places_.WordOf(*operation, sequence), sequence);
  return in_flight ? operation->end.timeline_pair : kNoTimelinePair;
}

DeviceBlock* RingOperations::DeviceBlockOf(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  const Operation* const operation = table_.Find(sequence);
  return operation == nullptr ? nullptr : operation->end.device_block;
}

std::vector<std::uint32_t> RingOperations::TimelinePairsOfUnfulfilled() {
  MutexLock lock(mutex_);
  Drain();
  std::vector<std::uint32_t> pairs(released_pairs_.begin(), released_pairs_.end());
  for (std::uint64_t place = 0; place < places_.capacity(); ++place) {
    if (StateOf(places_.WordAt(place)) != kInFlight) continue;
    const std::uint32_t pair = places_.EntryAt(place)->end.timeline_pair;
    if (pair != kNoTimelinePair) pairs.push_back(pair);
  }
  return pairs;
}

bool RingOperations::IsReleased(std::uint32_t timeline_pair) {
  MutexLock lock(mutex_);
  return released_pairs_.contains(timeline_pair);
}

}  // namespace ringd::client
