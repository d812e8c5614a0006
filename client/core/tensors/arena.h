// The memory that trainer and ringd share for tensors.
#ifndef RINGD_CLIENT_CORE_TENSORS_ARENA_H_
#define RINGD_CLIENT_CORE_TENSORS_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "client/core/tensors/arena_allocator.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// Thread safety: any thread may call anything.
// Ownership: owns the mapping; what it hands out is part of it.
class Arena {
 public:
  explicit Arena(MemoryMapping mapping);

  // Called without a lock when an allocation finds no room: may give memory back. True if it did.
  void set_reclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // kResourceExhausted: the message names the limit and the setting that raises it.
  absl::StatusOr<void*> AllocateZeroed(std::size_t bytes);
  // An offset; the contents are undefined.
  absl::StatusOr<std::uint64_t> AllocateOffset(std::uint64_t bytes);

  // False if nothing has been allocated there.
  [[nodiscard]] bool Free(const void* address);
  void FreeOffset(std::uint64_t offset);

  std::byte* AtOffset(std::uint64_t offset) const noexcept { return base_ + offset; }
  std::uint64_t OffsetOf(const void* address) const noexcept {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base_);
  }

  enum class Position : std::uint8_t { kOutside, kInside, kStraddling };
  // Where [address, address + bytes) lies.
  Position Locate(const void* address, std::uint64_t bytes) const noexcept {
    // Unsigned: an address before the arena becomes a huge offset.
    const std::uint64_t offset = OffsetOf(address);
    if (offset < size_) return bytes <= size_ - offset ? Position::kInside : Position::kStraddling;
    return bytes > std::uint64_t{0} - offset ? Position::kStraddling : Position::kOutside;
  }

  std::uint64_t size() const noexcept { return size_; }

  // The memory stays until the process ends: somebody is still to write into it.
  void Keep();

 private:
  absl::StatusOr<ArenaAllocator::Allocation> Allocate(std::uint64_t bytes);

  MemoryMapping mapping_;
  std::byte* const base_;
  const std::uint64_t size_;
  std::function<bool()> reclaim_;
  Mutex mutex_;
  ArenaAllocator allocator_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_ARENA_H_
