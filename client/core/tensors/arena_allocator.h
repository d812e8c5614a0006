// Which parts of the arena are in use: arithmetic on offsets, without touching the memory itself.
#ifndef RINGD_CLIENT_CORE_TENSORS_ARENA_ALLOCATOR_H_
#define RINGD_CLIENT_CORE_TENSORS_ARENA_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace ringd::client {

// Best fit over [0, capacity), with neighbouring free ranges merged. Among equally good ranges the
// one with the lowest offset is taken: pages that have been touched before are used again first.
//
// Thread safety: one thread at a time (Arena holds a lock).
// Invariants: free ranges are disjoint, never adjacent, and together with the allocations cover the
//   capacity exactly. Every allocation begins at a multiple of kAlignment.
class ArenaAllocator {
 public:
  static constexpr std::uint64_t kAlignment = 64;
  // Allocations of at least this many bytes begin at a multiple of it, to fill whole pages ...
  static constexpr std::uint64_t kPageBytes = 4096;
  // ... and of at least this many at a multiple of it, so that huge pages fit.
  static constexpr std::uint64_t kHugePageBytes = 2 * 1024 * 1024;

  explicit ArenaAllocator(std::uint64_t capacity);

  struct Allocation {
    std::uint64_t offset = 0;
    // How many bytes from the start have been handed out before, and may hold old contents; the
    // rest has never been touched.
    std::uint64_t used_before_bytes = 0;
  };

  // `bytes` of 0 count as 1. Nothing if no free range is large enough.
  std::optional<Allocation> Allocate(std::uint64_t bytes);

  // False, and nothing changes, if no allocation begins at `offset`.
  [[nodiscard]] bool Free(std::uint64_t offset);

  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  // The largest `bytes` that Allocate is sure to satisfy now.
  std::uint64_t LargestFree() const noexcept;

 private:
  void AddFree(std::uint64_t offset, std::uint64_t bytes);
  void RemoveFree(std::map<std::uint64_t, std::uint64_t>::iterator range);

  const std::uint64_t capacity_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t touched_end_ = 0;                          // no allocation has ever reached further
  std::map<std::uint64_t, std::uint64_t> free_by_offset_;  // offset -> bytes
  std::set<std::pair<std::uint64_t, std::uint64_t>> free_by_size_;  // (bytes, offset)
  std::unordered_map<std::uint64_t, std::uint64_t> allocations_;    // offset -> bytes
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_ARENA_ALLOCATOR_H_
