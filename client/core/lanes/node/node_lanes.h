// The communicators of this rank, besides that of all ranks, whose ranks are all on this node: each
// has memory and operations of its own.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_NODE_LANES_H_
#define RINGD_CLIENT_CORE_LANES_NODE_NODE_LANES_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/core/lanes/node/arena_mappings.h"
#include "client/core/lanes/node/job_memory.h"
#include "client/core/lanes/node/local_operations.h"
#include "client/core/lanes/node/node_lane.h"
#include "client/core/tensors/registrations.h"
#include "client/ringd.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// What ringd sends of a communicator may come before it has answered that there is one; so it is
// kept by number.
//
// Nothing of these operations is combined in the background: threads that wait do the work.
//
// Thread safety: any thread may call anything. Find takes no lock.
// Ownership: owns memory and operations; what is handed out lives until Close of its number.
class NodeLanes {
 public:
  // Operations of one lane in flight at once.
  static constexpr std::uint32_t kCapacity = 1024;
  static constexpr int kTagShift = 48;
  // The tag of operations that ringd carries out, whatever the lane: those on GPUs.
  static constexpr std::uint32_t kRingdsTag = (1U << 14) - 1;
  // The tag of those on tensors of GPUs that are reduced in the host's memory (HostPath).
  static constexpr std::uint32_t kHostPathTag = kRingdsTag - 1;
  // Lanes that a context may have had in its life.
  static constexpr std::uint32_t kMostLanes = kHostPathTag - 1;

  NodeLanes(std::byte* own_arena, std::uint64_t own_arena_bytes, ArenaMappings* arenas,
            Staging& staging, const SessionState& state)
      : own_arena_(own_arena),
        own_arena_bytes_(own_arena_bytes),
        arenas_(arenas),
        staging_(staging),
        state_(state) {}
  ~NodeLanes();
  NodeLanes(const NodeLanes&) = delete;
  NodeLanes& operator=(const NodeLanes&) = delete;

  void AddSegment(const JobSegmentNotice& notice, const UniqueFd& fd);
  void AddArena(const MemberArenaNotice& notice, const UniqueFd& fd);
  // Nothing more will come.
  void GiveUpMemory(const absl::Status& why);

  // The lane of communicator `number`, which ringd has made. Blocks until its memory is there, or
  // until `deadline`. `make` makes the operations in it. kResourceExhausted: there were kMostLanes.
  using Make = std::function<std::unique_ptr<LocalOperations>(const JobMemory& memory)>;
  absl::StatusOr<LaneUse> Open(std::uint32_t number, Clock::time_point deadline, const Make& make);
  // No effect if there is none. Requirement: no operation of it is in flight, and no thread in a
  // call with it.
  void Close(std::uint32_t number);

  // Whose operation it is; null: none's that is open. Requirement: TagOf is neither 0 nor one of
  // those above.
  LocalOperations* Find(ringd_operation operation) const noexcept {
    const std::uint32_t slot = TagOf(operation);
    const auto* const chunk = slots_[slot / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : (*chunk)[slot % kChunk].load(std::memory_order_acquire);
  }
  static constexpr std::uint32_t TagOf(ringd_operation operation) noexcept {
    return static_cast<std::uint32_t>(operation >> kTagShift) & kRingdsTag;
  }

  // Of all lanes that are open.
  void WakeAll() noexcept;
  void GiveUp() noexcept;
  bool AnyWaiter() const noexcept;
  // Grows as operations are taken out.
  std::uint64_t consumed() const noexcept;

 private:
  static constexpr std::uint32_t kChunk = 128;
  using Chunk = std::array<std::atomic<LocalOperations*>, kChunk>;
  struct Lane {
    std::unique_ptr<JobMemory> memory;
    std::unique_ptr<LocalOperations> operations;
    std::optional<NodeLane> way;  // once there are operations
    std::uint32_t slot = 0;
  };

  JobMemory& MemoryOf(std::uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Show(std::uint32_t slot, LocalOperations* operations) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::byte* const own_arena_;
  const std::uint64_t own_arena_bytes_;
  ArenaMappings* const arenas_;
  Staging& staging_;
  const SessionState& state_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  absl::Status given_up_ ABSL_GUARDED_BY(mutex_);  // not OK: no memory comes any more
  std::uint32_t last_slot_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t consumed_before_ ABSL_GUARDED_BY(mutex_) = 0;  // by lanes that are closed
  // By slot. Written under mutex_.
  std::array<std::atomic<Chunk*>, (kRingdsTag + 1) / kChunk> slots_{};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_NODE_LANES_H_
