// Memory of the host that the GPU reaches although CUDA has not made it: registered, and so
// page-locked.
#ifndef RINGD_BACKENDS_CUDA_REGISTERED_MEMORY_H_
#define RINGD_BACKENDS_CUDA_REGISTERED_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"

namespace ringd {

// Copies from and to it keep no thread waiting, and streams write and wait for values in it.
//
// Thread safety: immutable.
// Ownership: shares the context; the memory itself is somebody else's and must outlive the object.
//   The destructor unregisters, which may wait for all that the GPU has to do (Driver API,
//   cuMemHostUnregister).
class RegisteredMemory {
 public:
  // Blocks while the pages are locked. Requirement: no page of the range is registered already.
  //   kResourceExhausted: so much can't be locked.  Others as CudaStatus says.
  static absl::StatusOr<RegisteredMemory> Register(std::shared_ptr<const CudaContext> context,
                                                   void* data, std::size_t bytes);

  RegisteredMemory(RegisteredMemory&& other) noexcept { *this = std::move(other); }
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept;
  ~RegisteredMemory() { Unregister(); }

  // As the GPU sees it.
  DeviceAddress address() const noexcept { return address_; }
  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  RegisteredMemory() = default;
  void Unregister() noexcept;

  std::shared_ptr<const CudaContext> context_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceAddress address_ = 0;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_REGISTERED_MEMORY_H_
