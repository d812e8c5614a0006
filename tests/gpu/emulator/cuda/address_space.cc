#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "tests/gpu/emulator/cuda/device_memory.h"

namespace ringd::emulator {
namespace {

constexpr unsigned kAllDevices = ~0U;

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Addresses that nothing else gets. Aligned to a granule; 0 if there are none.
CUdeviceptr TakeAddresses(std::size_t bytes) {
  void* const taken = ::mmap(nullptr, bytes + kGranularity, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (taken == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<CUdeviceptr>(taken);
  return (begin + kGranularity - 1) / kGranularity * kGranularity;
}

// What the host sees of an allocation: nothing.
bool ShowNothing(CUdeviceptr begin, std::size_t bytes, const Allocation& allocation) {
  return ::mmap(Pointer(begin), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation.descriptor(),
                0) != MAP_FAILED;
}

void HideAgain(CUdeviceptr begin, std::size_t bytes) {
  ::mmap(Pointer(begin), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
}

bool IsHost(const Mapping& mapping) { return mapping.allocation->device() < 0; }

}  // namespace

CUdeviceptr AddressSpace::Add(std::shared_ptr<Allocation> allocation, std::size_t bytes,
                              MappingKind kind, unsigned accessible_by, int context_device) {
  const CUdeviceptr begin = TakeAddresses(allocation->bytes());
  if (begin == 0) return 0;
  if (allocation->device() >= 0 && !ShowNothing(begin, allocation->bytes(), *allocation)) return 0;
  const MutexLock lock(mutex_);
  if (kind == MappingKind::kAllocated) accessible_by |= peers_[allocation->device()];
  mappings_[begin] = {begin, bytes, kind, std::move(allocation), accessible_by, context_device};
  return begin;
}

void AddressSpace::AddHost(std::shared_ptr<Allocation> allocation, int context_device,
                           bool has_device_pointer) {
  const MutexLock lock(mutex_);
  const auto begin = reinterpret_cast<CUdeviceptr>(allocation->alias());
  const std::size_t bytes = allocation->bytes();
  mappings_[begin] = {
      begin,       bytes,          MappingKind::kHostAllocated, std::move(allocation),
      kAllDevices, context_device, has_device_pointer};
}

bool AddressSpace::Remove(CUdeviceptr begin, MappingKind kind) {
  const MutexLock lock(mutex_);
  const auto found = mappings_.find(begin);
  if (found == mappings_.end() || found->second.kind != kind) return false;
  if (!IsHost(found->second)) HideAgain(begin, found->second.allocation->bytes());
  mappings_.erase(found);
  return true;
}

void AddressSpace::RemoveOfContext(int device) {
  std::vector<std::pair<CUdeviceptr, MappingKind>> gone;
  {
    const MutexLock lock(mutex_);
    for (const auto& [begin, mapping] : mappings_) {
      if (mapping.context_device == device && mapping.kind == MappingKind::kAllocated) {
        gone.emplace_back(begin, mapping.kind);
      }
    }
  }
  for (const auto& [begin, kind] : gone) Remove(begin, kind);
}

CUresult AddressSpace::Reserve(CUdeviceptr* begin, std::size_t bytes) {
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  *begin = TakeAddresses(bytes);
  if (*begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock lock(mutex_);
  reserved_[*begin] = bytes;
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Unreserve(CUdeviceptr begin, std::size_t bytes) {
  const MutexLock lock(mutex_);
  const auto found = reserved_.find(begin);
  if (found == reserved_.end() || found->second != bytes || Overlaps(begin, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reserved_.erase(found);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Map(CUdeviceptr begin, std::size_t bytes,
                           std::shared_ptr<Allocation> allocation, int context_device) {
  if (bytes == 0 || begin % kGranularity != 0 || bytes % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const MutexLock lock(mutex_);
  auto around = reserved_.upper_bound(begin);
  if (around == reserved_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --around;
  const bool inside = begin + bytes <= around->first + around->second;
  if (!inside || Overlaps(begin, bytes) || bytes > allocation->bytes()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!ShowNothing(begin, bytes, *allocation)) return CUDA_ERROR_OUT_OF_MEMORY;
  mappings_[begin] = {begin, bytes, MappingKind::kMapped, std::move(allocation), 0, context_device};
  return CUDA_SUCCESS;
}

CUresult AddressSpace::Unmap(CUdeviceptr begin, std::size_t bytes) {
  const MutexLock lock(mutex_);
  // Whole mappings, one behind the other, from the first byte to the last.
  CUdeviceptr at = begin;
  while (at < begin + bytes) {
    const auto found = mappings_.find(at);
    if (found == mappings_.end() || found->second.kind != MappingKind::kMapped) break;
    at += found->second.bytes;
  }
  if (bytes == 0 || at != begin + bytes) return CUDA_ERROR_INVALID_VALUE;
  mappings_.erase(mappings_.find(begin), mappings_.lower_bound(begin + bytes));
  HideAgain(begin, bytes);
  return CUDA_SUCCESS;
}

CUresult AddressSpace::SetAccess(CUdeviceptr begin, std::size_t bytes, int device, bool may) {
  const MutexLock lock(mutex_);
  CUdeviceptr at = begin;
  std::vector<Mapping*> touched;
  while (at < begin + bytes) {
    const auto found = mappings_.find(at);
    if (found == mappings_.end() || found->second.kind != MappingKind::kMapped) break;
    touched.push_back(&found->second);
    at += found->second.bytes;
  }
  if (bytes == 0 || at != begin + bytes) return CUDA_ERROR_INVALID_VALUE;
  const unsigned bit = 1U << static_cast<unsigned>(device);
  for (Mapping* mapping : touched) {
    mapping->accessible_by = may ? mapping->accessible_by | bit : mapping->accessible_by & ~bit;
  }
  return CUDA_SUCCESS;
}

void AddressSpace::AllowPeer(int device, int of_device) {
  const MutexLock lock(mutex_);
  const unsigned bit = 1U << static_cast<unsigned>(device);
  peers_[of_device] |= bit;
  for (auto& [begin, mapping] : mappings_) {
    if (mapping.kind == MappingKind::kAllocated && mapping.allocation->device() == of_device) {
      mapping.accessible_by |= bit;
    }
  }
}

const Mapping* AddressSpace::FindMapping(CUdeviceptr begin, std::size_t bytes) const {
  auto found = mappings_.upper_bound(begin);
  if (found == mappings_.begin()) return nullptr;
  const Mapping& mapping = std::prev(found)->second;
  const std::size_t offset = begin - mapping.begin;
  return offset < mapping.bytes && bytes <= mapping.bytes - offset ? &mapping : nullptr;
}

bool AddressSpace::Overlaps(CUdeviceptr begin, std::size_t bytes) const {
  const auto behind = mappings_.lower_bound(begin);
  if (behind != mappings_.end() && behind->first < begin + bytes) return true;
  return FindMapping(begin, 1) != nullptr;
}

View AddressSpace::Find(CUdeviceptr begin, std::size_t bytes, int device) const {
  const MutexLock lock(mutex_);
  const Mapping* const mapping = FindMapping(begin, std::max<std::size_t>(bytes, 1));
  if (mapping == nullptr || !mapping->has_device_pointer) return {};
  if (device != kAnyDevice && (mapping->accessible_by >> static_cast<unsigned>(device) & 1U) == 0) {
    return {};
  }
  return {mapping->allocation->alias() + (begin - mapping->begin), *mapping};
}

View AddressSpace::FindHost(const void* memory) const {
  const MutexLock lock(mutex_);
  const auto* const byte = static_cast<const char*>(memory);
  for (const auto& [begin, mapping] : mappings_) {
    if (!IsHost(mapping)) continue;
    char* const alias = mapping.allocation->alias();
    if (byte >= alias && byte < alias + mapping.bytes) return {alias + (byte - alias), mapping};
  }
  return {};
}

bool AddressSpace::IsPageLocked(const void* memory, std::size_t bytes) const {
  const View view = FindHost(memory);
  if (view.alias == nullptr) return false;
  const char* const end = view.mapping.allocation->alias() + view.mapping.bytes;
  return bytes <= static_cast<std::size_t>(end - view.alias);
}

}  // namespace ringd::emulator
