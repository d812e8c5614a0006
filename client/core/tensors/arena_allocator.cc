#include "client/core/tensors/arena_allocator.h"

#include <algorithm>
#include <iterator>

namespace ringd::client {
namespace {

constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr std::uint64_t AlignmentFor(std::uint64_t bytes) noexcept {
  if (bytes >= ArenaAllocator::kHugePageBytes) return ArenaAllocator::kHugePageBytes;
  if (bytes >= ArenaAllocator::kPageBytes) return ArenaAllocator::kPageBytes;
  return ArenaAllocator::kAlignment;
}

}  // namespace

ArenaAllocator::ArenaAllocator(std::uint64_t capacity)
    : capacity_(capacity / kAlignment * kAlignment) {
  if (capacity_ > 0) AddFree(0, capacity_);
}

std::optional<ArenaAllocator::Allocation> ArenaAllocator::Allocate(std::uint64_t bytes) {
  if (bytes > capacity_) return std::nullopt;
  const std::uint64_t wanted = RoundUp(std::max<std::uint64_t>(bytes, 1), kAlignment);
  // Large alignments are a wish: a nearly full arena still serves without them.
  for (std::uint64_t alignment : {AlignmentFor(wanted), kAlignment}) {
    for (auto candidate = free_by_size_.lower_bound({wanted, 0}); candidate != free_by_size_.end();
         ++candidate) {
      const auto [range_bytes, range_offset] = *candidate;
      const std::uint64_t offset = RoundUp(range_offset, alignment);
      const std::uint64_t padding = offset - range_offset;
      if (range_bytes < padding + wanted) continue;
      allocations_.emplace(offset, wanted);
      RemoveFree(free_by_offset_.find(range_offset));
      if (padding > 0) AddFree(range_offset, padding);
      const std::uint64_t rest = range_bytes - padding - wanted;
      if (rest > 0) AddFree(offset + wanted, rest);
      used_bytes_ += wanted;
      Allocation allocation;
      allocation.offset = offset;
      allocation.used_before_bytes =
          touched_end_ > offset ? std::min(touched_end_ - offset, wanted) : 0;
      touched_end_ = std::max(touched_end_, offset + wanted);
      return allocation;
    }
  }
  return std::nullopt;
}

bool ArenaAllocator::Free(std::uint64_t offset) {
  const auto allocation = allocations_.find(offset);
  if (allocation == allocations_.end()) return false;
  std::uint64_t begin = offset;
  std::uint64_t bytes = allocation->second;
  used_bytes_ -= bytes;
  allocations_.erase(allocation);
  const auto next = free_by_offset_.find(begin + bytes);
  if (next != free_by_offset_.end()) {
    bytes += next->second;
    RemoveFree(next);
  }
  const auto after = free_by_offset_.lower_bound(begin);
  if (after != free_by_offset_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      bytes += previous->second;
      RemoveFree(previous);
    }
  }
  AddFree(begin, bytes);
  return true;
}

std::uint64_t ArenaAllocator::LargestFree() const noexcept {
  return free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first;
}

void ArenaAllocator::AddFree(std::uint64_t offset, std::uint64_t bytes) {
  free_by_offset_.emplace(offset, bytes);
  free_by_size_.emplace(bytes, offset);
}

void ArenaAllocator::RemoveFree(std::map<std::uint64_t, std::uint64_t>::iterator range) {
  free_by_size_.erase({range->second, range->first});
  free_by_offset_.erase(range);
}

}  // namespace ringd::client
