// Memory of this process's own: on the GPU, and on the host where the GPU reaches it.
#ifndef RINGD_BACKENDS_CUDA_DEVICE_MEMORY_H_
#define RINGD_BACKENDS_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"

namespace ringd {

// Bytes on the GPU that no other process has. Their content is undefined in the beginning.
//
// Thread safety: immutable. Ownership: shares the context; freed when it goes, which waits for the
// GPU's work (Driver API, cuMemFree).
class DeviceMemory {
 public:
  // Null and of no bytes for 0 bytes.
  //   kResourceExhausted: the GPU has too little left; the message says how much was asked for and
  //   on which GPU.  Others as CudaStatus says.
  static absl::StatusOr<DeviceMemory> Allocate(std::shared_ptr<const CudaContext> context,
                                               std::size_t bytes);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { Free(); }

  DeviceAddress address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void Free() noexcept;

  std::shared_ptr<const CudaContext> context_;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;
};

// Page-locked bytes of the host: copies from them don't keep the host waiting.
//
// Thread safety and ownership as DeviceMemory.
class PinnedMemory {
 public:
  // As CudaStatus says.
  static absl::StatusOr<PinnedMemory> Allocate(std::shared_ptr<const CudaContext> context,
                                               std::size_t bytes);

  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory() { Free(); }

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void Free() noexcept;

  std::shared_ptr<const CudaContext> context_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_DEVICE_MEMORY_H_
