#include "tests/gpu/emulator/nccl/registered_memory.h"

#include <algorithm>
#include <atomic>

#include "tests/gpu/emulator/nccl/cuda_access.h"

namespace ringd::emulator {

void* RegisteredMemory::Add(const RegisteredRange& range) {
  static std::atomic<std::uintptr_t> next{1};
  const std::uintptr_t number = next.fetch_add(1, std::memory_order_relaxed);
  auto* const handle = reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr)
  const MutexLock lock(mutex_);
  ranges_[handle] = range;
  return handle;
}

std::optional<RegisteredRange> RegisteredMemory::Remove(void* handle) {
  const MutexLock lock(mutex_);
  const auto found = ranges_.find(handle);
  if (found == ranges_.end()) return std::nullopt;
  const RegisteredRange range = found->second;
  ranges_.erase(found);
  return range;
}

std::optional<RegisteredRange> RegisteredMemory::Find(const void* memory, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const MutexLock lock(mutex_);
  for (const auto& [handle, range] : ranges_) {
    const bool begins_there = begin >= range.begin && begin - range.begin <= range.bytes;
    if (begins_there && bytes <= range.bytes - (begin - range.begin)) return range;
  }
  return std::nullopt;
}

bool RegisteredMemory::IsThere(int device) const {
  const MutexLock lock(mutex_);
  return std::all_of(ranges_.begin(), ranges_.end(),
                     [device](const auto& entry) { return IsMemoryOf(device, entry.second); });
}

bool IsMemoryOf(int device, const RegisteredRange& range) {
  return CudaAccess::Find()->alias(device, range.begin, range.bytes) != nullptr;
}

}  // namespace ringd::emulator
