// What the ranks of a communicator with one node share: the job segment and all members' arenas.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_JOB_MEMORY_H_
#define RINGD_CLIENT_CORE_LANES_NODE_JOB_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/core/lanes/node/arena_mappings.h"
#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/job_segment.h"

namespace ringd::client {

// Filled by the thread that reads ringd's notices; used by everybody once Await has returned
// OkStatus.
//
// Thread safety: Add*, Await: any thread. The rest: after Await, immutable.
// Ownership: owns the mappings of the segment and of the other members' arenas; borrows this
//   process's own arena.
class JobMemory {
 public:
  // `arenas` must outlive it.
  JobMemory(std::byte* own_arena, std::uint64_t own_arena_bytes, ArenaMappings* arenas)
      : own_{own_arena, own_arena_bytes}, shared_arenas_(arenas) {}

  // What ringd sent is mapped and checked here; the first thing wrong is what Await returns.
  void AddSegment(const JobSegmentNotice& notice, const UniqueFd& fd);
  void AddArena(const MemberArenaNotice& notice, const UniqueFd& fd);

  // Nothing more will come: Await returns `why`, unless it has returned.
  void GiveUp(const absl::Status& why);

  // Blocks until everything is there. kDeadlineExceeded: ringd has not sent all of it.
  absl::Status Await(Clock::time_point deadline);

  struct MemberArena {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
  };
  const JobSegmentView& segment() const noexcept { return view_; }
  // This process's place among the members, who are ordered by local rank.
  std::uint32_t self() const noexcept { return self_; }
  std::span<const MemberArena> arenas() const noexcept { return arenas_; }

 private:
  absl::Status MapSegment(const JobSegmentNotice& notice, const UniqueFd& fd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MapArena(const MemberArenaNotice& notice, const UniqueFd& fd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const MemberArena own_;
  ArenaMappings* const shared_arenas_;
  Mutex mutex_;
  CondVar changed_;
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);
  std::size_t missing_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;  // arenas that have not come
  // Written under mutex_ until Await returns; not at all afterwards.
  MemoryMapping segment_;
  std::vector<std::shared_ptr<const MemoryMapping>> mappings_;
  JobSegmentView view_;
  std::uint32_t self_ = 0;
  std::vector<MemberArena> arenas_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_JOB_MEMORY_H_
