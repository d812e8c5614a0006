// What a queue of operations knows of those on tensors in device memory: their timeline's pairs.
#include "client/core/lanes/wire/ring_operations.h"

namespace ringd::client {

std::uint32_t RingOperations::TimelinePairOf(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  Drain();
  const Slot* const slot = Find(sequence);
  if (slot == nullptr || !IsInFlight(WordOf(*slot, sequence), sequence)) return kNoTimelinePair;
  return slot->end.timeline_pair;
}

DeviceBlock* RingOperations::DeviceBlockOf(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  const Slot* const slot = Find(sequence);
  return slot == nullptr ? nullptr : slot->end.device_block;
}

std::vector<std::uint32_t> RingOperations::TimelinePairsOfUnfulfilled() {
  MutexLock lock(mutex_);
  Drain();
  std::vector<std::uint32_t> pairs(released_pairs_.begin(), released_pairs_.end());
  for (std::uint64_t place = 0; place < slots_.size(); ++place) {
    if (StateOf(PlaceOf(place).load(std::memory_order_relaxed)) != kInFlight) continue;
    const std::uint32_t pair = slots_[place].end.timeline_pair;
    if (pair != kNoTimelinePair) pairs.push_back(pair);
  }
  return pairs;
}

bool RingOperations::IsReleased(std::uint32_t timeline_pair) {
  MutexLock lock(mutex_);
  return released_pairs_.contains(timeline_pair);
}

}  // namespace ringd::client
