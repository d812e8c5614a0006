// Memory in which tensors of a GPU are worked on: device memory, or the host's.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_STAGING_MEMORY_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_STAGING_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"

namespace ringd::client {

// Where a caller's device pointer points to.
inline DeviceAddress DeviceAddressOf(const void* pointer) noexcept {
  return static_cast<DeviceAddress>(reinterpret_cast<std::uintptr_t>(pointer));
}

// Parts of it are named by their offsets.
//
// Thread safety: any thread may call anything. Nothing waits for the GPU.
class StagingMemory {
 public:
  virtual ~StagingMemory() = default;

  virtual const std::shared_ptr<const CudaContext>& gpu() const noexcept = 0;

  // The offset of what a caller's pointer points to; nothing: it is elsewhere.
  //   kInvalidArgument: the range is not all in it, and not all outside.
  virtual absl::StatusOr<std::optional<std::uint64_t>> Find(const void* address,
                                                            std::uint64_t bytes) const = 0;

  // kResourceExhausted: it is full, and the message names the setting; or what the driver says.
  virtual absl::StatusOr<std::uint64_t> AllocateAt(std::uint64_t bytes) = 0;
  // Requirement: AllocateAt gave it.
  virtual void FreeAt(std::uint64_t offset) = 0;

  // Put on `stream`: copies from and to memory of the GPU's; a wait for an operation's result, by
  // its pair of values. As EnqueueCopy and Timeline::Wait.
  virtual absl::Status CopyIn(std::uint64_t offset, DeviceAddress from, std::uint64_t bytes,
                              StreamHandle stream) const = 0;
  virtual absl::Status CopyOut(DeviceAddress to, std::uint64_t offset, std::uint64_t bytes,
                               StreamHandle stream) const = 0;
  virtual absl::Status WaitForResult(StreamHandle stream, std::uint32_t pair,
                                     std::uint64_t sequence) const = 0;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_STAGING_MEMORY_H_
