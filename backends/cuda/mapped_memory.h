// Memory of a GPU that NCCL can register.
#ifndef RINGD_BACKENDS_CUDA_MAPPED_MEMORY_H_
#define RINGD_BACKENDS_CUDA_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"

namespace ringd {

// Bytes of the driver's virtual memory management, of which nothing else has a part: whole
// granules, exportable, as NCCL asks for of memory that it is to register and has not made itself
// (NCCL User Guide, User Buffer Registration, Memory Allocator). Their content is undefined in the
// beginning.
//
// Thread safety: immutable. Ownership: shares the context. Unmapped and given back when it goes;
//   that does not wait for the GPU, so what uses the memory is over by then.
class MappedMemory {
 public:
  // Null and of no bytes for 0 bytes.
  //   kResourceExhausted: the GPU has too little left; the message says how much was asked for and
  //   on which GPU.  Others as CudaStatus says.
  static absl::StatusOr<MappedMemory> Create(std::shared_ptr<const CudaContext> context,
                                             std::size_t bytes);

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept { *this = std::move(other); }
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory() { Free(); }

  DeviceAddress address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }  // whole granules

 private:
  void Free() noexcept;

  std::shared_ptr<const CudaContext> context_;  // null: nothing is owned
  std::uint64_t handle_ = 0;
  DeviceAddress address_ = 0;
  std::size_t bytes_ = 0;
  bool is_mapped_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_MAPPED_MEMORY_H_
