#include "client/core/tensors/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ringd::client {
namespace {

std::string ReadableBytes(std::uint64_t bytes) {
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  constexpr std::uint64_t kKiB = std::uint64_t{1} << 10;
  if (bytes >= kGiB && bytes % kGiB == 0) return absl::StrCat(bytes / kGiB, " GiB");
  if (bytes >= kMiB) return absl::StrCat(bytes / kMiB, " MiB");
  if (bytes >= kKiB) return absl::StrCat(bytes / kKiB, " KiB");
  return absl::StrCat(bytes, " bytes");
}

}  // namespace

Arena::Arena(MemoryMapping mapping)
    : mapping_(std::move(mapping)),
      base_(mapping_.data()),
      size_(mapping_.size()),
      allocator_(size_) {
  // Only a wish: where the kernel gives shared memory no huge pages, nothing changes.
  ::madvise(base_, size_, MADV_HUGEPAGE);
}

absl::StatusOr<ArenaAllocator::Allocation> Arena::Allocate(std::uint64_t bytes) {
  for (bool again = true;;) {
    std::uint64_t used = 0;
    std::uint64_t largest = 0;
    {
      MutexLock lock(mutex_);
      std::optional<ArenaAllocator::Allocation> allocation = allocator_.Allocate(bytes);
      if (allocation.has_value()) return *allocation;
      used = allocator_.used_bytes();
      largest = allocator_.LargestFree();
    }
    if (again && reclaim_) {
      // Another thread may have reclaimed all meanwhile: then there is nothing left here, and room.
      reclaim_();
      again = false;
      continue;
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "the arena of ", ReadableBytes(size_), " is full: ", ReadableBytes(bytes),
        " were asked for, ", ReadableBytes(used), " are in use, the largest free range has ",
        ReadableBytes(largest), "; raise arena_bytes in ringd.toml (RINGD_ARENA_BYTES)"));
  }
}

absl::StatusOr<void*> Arena::AllocateZeroed(std::size_t bytes) {
  const absl::StatusOr<ArenaAllocator::Allocation> allocation = Allocate(bytes);
  if (!allocation.ok()) return allocation.status();
  std::byte* address = base_ + allocation->offset;
  // What has never been handed out is zero already, and must not be touched for nothing.
  std::memset(address, 0, std::min<std::uint64_t>(allocation->used_before_bytes, bytes));
  return address;
}

absl::StatusOr<std::uint64_t> Arena::AllocateOffset(std::uint64_t bytes) {
  const absl::StatusOr<ArenaAllocator::Allocation> allocation = Allocate(bytes);
  if (!allocation.ok()) return allocation.status();
  return allocation->offset;
}

void Arena::Keep() {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): that is what it is for.
  [[maybe_unused]] const auto* const kept = new MemoryMapping(std::move(mapping_));
}

bool Arena::Free(const void* address) {
  MutexLock lock(mutex_);
  return allocator_.Free(OffsetOf(address));
}

void Arena::FreeOffset(std::uint64_t offset) {
  MutexLock lock(mutex_);
  // Only for offsets that AllocateOffset gave, so there is something to free.
  [[maybe_unused]] const bool freed = allocator_.Free(offset);
}

}  // namespace ringd::client
