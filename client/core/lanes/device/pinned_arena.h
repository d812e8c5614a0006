// The part of the arena that the GPU reaches: where its tensors are while they are reduced in the
// host's memory.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_PINNED_ARENA_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_PINNED_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/registered_memory.h"
#include "backends/cuda/timeline.h"
#include "client/core/lanes/device/staging_memory.h"
#include "client/core/tensors/arena.h"
#include "client/core/tensors/arena_allocator.h"
#include "proto/base/cache_line.h"
#include "proto/base/mutex.h"
#include "proto/shm/staging_progress.h"

namespace ringd::client {

// Segments of the arena, which are registered with CUDA when they are needed, and then stay so:
// giving one back may wait for all that the GPU has to do, and streams may be waiting for a result
// that is still to come. Offsets are the arena's.
//
// Each operation in flight has a pair of values in it: a stream writes the one when the source is
// there, the host the other when the result is. Not where the GPU has no stream memory operations
// (has_values).
//
// Thread safety: any thread may call anything. AllocateAt blocks while pages are locked.
// Ownership: of the registrations; borrows the arena. What streams still do with it must have been
//   done before it goes.
class PinnedArena final : public StagingMemory {
 public:
  // Of operations, by their number: sequence % kPairs.
  static constexpr std::uint32_t kPairs = 4096;

  //   kResourceExhausted: the arena is full, or memory can't be locked.  Others as CudaStatus says.
  static absl::StatusOr<std::unique_ptr<PinnedArena>> Create(std::shared_ptr<const CudaContext> gpu,
                                                             Arena& arena);
  ~PinnedArena() override;

  const std::shared_ptr<const CudaContext>& gpu() const noexcept override { return gpu_; }
  // Callers' tensors are elsewhere.
  absl::StatusOr<std::optional<std::uint64_t>> Find(const void* /*address*/,
                                                    std::uint64_t /*bytes*/) const override {
    return std::optional<std::uint64_t>();
  }
  absl::StatusOr<std::uint64_t> AllocateAt(std::uint64_t bytes) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeAt(std::uint64_t offset) override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CopyIn(std::uint64_t offset, DeviceAddress from, std::uint64_t bytes,
                      StreamHandle stream) const override;
  absl::Status CopyOut(DeviceAddress to, std::uint64_t offset, std::uint64_t bytes,
                       StreamHandle stream) const override;
  absl::Status WaitForResult(StreamHandle stream, std::uint32_t pair,
                             std::uint64_t sequence) const override {
    return WaitForPieces(stream, pair, sequence, kAll);
  }

  std::byte* At(std::uint64_t offset) const noexcept { return arena_.AtOffset(offset); }

  // Streams can write and wait for values: a requirement of all that follows but SetDone.
  bool has_values() const noexcept { return pairs_ != nullptr; }

  // A tensor comes and goes as a whole, which is this count, or in pieces, which are counted.
  static constexpr std::uint32_t kAll = 127;
  static_assert(kMaxStagingPieces < kAll);

  // Puts on `stream`: so many pieces of the operation's source are there, or kAll.
  absl::Status SignalReady(StreamHandle stream, std::uint32_t pair, std::uint64_t sequence,
                           std::uint32_t pieces) const;
  // The number to which a stream has come; 0: to none. Their bytes can be read.
  std::uint32_t ReadyPieces(std::uint32_t pair, std::uint64_t sequence) const noexcept;
  // Streams that wait for so many pieces of the result go on. What the host has written before,
  // they see. Nothing without values.
  void SetDone(std::uint32_t pair, std::uint64_t sequence, std::uint32_t pieces) noexcept;
  // Puts on `stream`: a wait for that.
  absl::Status WaitForPieces(StreamHandle stream, std::uint32_t pair, std::uint64_t sequence,
                             std::uint32_t pieces) const;

 private:
  struct alignas(kCacheLineBytes) Value {
    std::uint64_t value;
  };
  struct Pair {
    Value ready;  // written by streams
    Value done;   // by the host
  };
  struct Segment {
    Segment(std::uint64_t begins_at, RegisteredMemory registered)
        : begin(begins_at), memory(std::move(registered)), allocator(memory.bytes()) {}

    std::uint64_t begin;
    RegisteredMemory memory;
    ArenaAllocator allocator;
  };

  PinnedArena(std::shared_ptr<const CudaContext> gpu, Arena& arena)
      : gpu_(std::move(gpu)), arena_(arena) {}
  absl::StatusOr<std::unique_ptr<Segment>> Lock(std::uint64_t bytes);
  absl::Status Grow(std::uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<std::uint64_t> TryAllocate(std::uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It grows from each operation of a pair to the next, and with the pieces.
  static constexpr std::uint64_t ValueOf(std::uint64_t sequence, std::uint32_t pieces) noexcept {
    return (sequence + 1) * (kAll + 1) + pieces;
  }
  // As the GPU sees them.
  DeviceAddress ReadyAt(std::uint32_t pair) const noexcept;
  DeviceAddress DoneAt(std::uint32_t pair) const noexcept;

  const std::shared_ptr<const CudaContext> gpu_;
  Arena& arena_;
  std::unique_ptr<Segment> values_;  // of its own; null: has_values
  Pair* pairs_ = nullptr;            // in it
  Mutex mutex_;
  std::vector<std::unique_ptr<Segment>> segments_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all segments
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_PINNED_ARENA_H_
