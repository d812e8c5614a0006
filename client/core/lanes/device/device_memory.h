// This rank's memory on a GPU, and the order between its streams and the engine's.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_DEVICE_MEMORY_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/device_slab.h"
#include "backends/cuda/timeline.h"
#include "client/core/lanes/device/slab_inbox.h"
#include "client/core/lanes/device/staging_memory.h"
#include "client/core/lanes/device/timeline_pairs.h"
#include "client/core/tensors/arena_allocator.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// A slab: who has which of its bytes, and the timeline's pairs of values, of which each
// operation in flight has one.
//
// Thread safety: any thread may call anything. Nothing waits for the GPU; a driver that hangs holds
//   up its caller.
// Ownership: of the mapping, if it was imported. What Allocate has handed out is part of it.
class DeviceMemory final : public StagingMemory {
 public:
  // Opens the GPU for this process, before ringd is asked: its UUID tells ringd which one it is.
  // Blocks as long as the driver takes.
  //   kNotFound, kFailedPrecondition: no such library or GPU, or the driver is too old. The message
  //   names the file.
  static absl::StatusOr<std::shared_ptr<const CudaContext>> OpenGpu(const std::string& cuda_library,
                                                                    int ordinal);

  // Has a slab that this process has made itself (LaunchServant); it must outlive the object.
  //   kInternal: there is no room for tensors.  Others as CudaStatus says.
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Use(std::shared_ptr<const CudaContext> gpu,
                                                           DeviceAddress address,
                                                           std::uint64_t bytes);

  // Maps what ringd has sent. As ImportedSlab::Import.
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Import(
      std::shared_ptr<const CudaContext> gpu, SlabInbox::Slab slab);

  // A device pointer. kResourceExhausted: the message names slab_bytes.
  absl::StatusOr<void*> Allocate(std::uint64_t bytes);
  // False if nothing has been allocated there.
  [[nodiscard]] bool Free(const void* address) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<const CudaContext>& gpu() const noexcept override { return gpu_; }

  // Whether some of it is in the slab, the timeline included.
  bool Touches(const void* address, std::uint64_t bytes) const noexcept {
    const DeviceAddress begin = DeviceAddressOf(address);
    return begin < address_ + bytes_ && (begin >= address_ || bytes > address_ - begin);
  }
  DeviceAddress AddressAt(std::uint64_t offset) const noexcept { return address_ + offset; }
  // The same, as callers see it: an address of the GPU's, which the host never follows.
  void* PointerAt(std::uint64_t offset) const noexcept {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(AddressAt(offset)));
  }

  // Bytes from the slab's start.
  absl::StatusOr<std::optional<std::uint64_t>> Find(const void* address,
                                                    std::uint64_t bytes) const override;
  absl::StatusOr<std::uint64_t> AllocateAt(std::uint64_t bytes) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeAt(std::uint64_t offset) override { static_cast<void>(Free(PointerAt(offset))); }
  absl::Status CopyIn(std::uint64_t offset, DeviceAddress from, std::uint64_t bytes,
                      StreamHandle stream) const override;
  absl::Status CopyOut(DeviceAddress to, std::uint64_t offset, std::uint64_t bytes,
                       StreamHandle stream) const override;

  // Puts on `stream`: the operation's source is ready.
  absl::Status SignalReady(void* stream, std::uint32_t pair, std::uint64_t sequence) const;
  absl::Status WaitForResult(StreamHandle stream, std::uint32_t pair,
                             std::uint64_t sequence) const override;
  // Ends all waits for the results of these pairs, now and later. Best effort: there is nothing to
  // be done if it fails.
  void ReleaseWaits(std::span<const std::uint32_t> pairs) const noexcept;
  // False: what ReleaseWaits has put on the GPU has not been done by `deadline`, and needs the
  // memory.
  [[nodiscard]] bool WaitReleased(Clock::time_point deadline) const {
    return !absl::IsDeadlineExceeded(timeline_.WaitReleased(deadline));
  }

  // False: by `deadline` some stream has not come to where SignalReady has put a value for an
  // operation of `pairs`, and needs the memory.
  [[nodiscard]] bool WaitSignalled(const TimelinePairs& pairs, Clock::time_point deadline) const;

 private:
  DeviceMemory(std::shared_ptr<const CudaContext> gpu, std::optional<ImportedSlab> slab,
               DeviceAddress address, std::uint64_t bytes, Timeline timeline);

  const std::shared_ptr<const CudaContext> gpu_;
  const std::optional<ImportedSlab> imported_;
  const DeviceAddress address_;
  const std::uint64_t bytes_;  // the timeline included
  const Timeline timeline_;
  mutable Mutex mutex_;
  ArenaAllocator allocator_ ABSL_GUARDED_BY(mutex_);  // of what is behind the timeline
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_DEVICE_MEMORY_H_
