#include "backends/cuda/registered_memory.h"

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"

namespace ringd {

absl::StatusOr<RegisteredMemory> RegisteredMemory::Register(
    std::shared_ptr<const CudaContext> context, void* data, std::size_t bytes) {
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context->driver();
  if (auto status = CudaStatus(cuda, absl::StrCat("cuMemHostRegister of ", bytes, " bytes"),
                               cuda.cuMemHostRegister(data, bytes, CU_MEMHOSTREGISTER_DEVICEMAP));
      !status.ok()) {
    return status;
  }
  RegisteredMemory memory;
  memory.context_ = context;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  CUdeviceptr address = 0;
  if (auto status = CudaStatus(cuda, "cuMemHostGetDevicePointer",
                               cuda.cuMemHostGetDevicePointer(&address, data, 0));
      !status.ok()) {
    return status;
  }
  memory.address_ = address;
  return memory;
}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  if (this == &other) return *this;
  Unregister();
  context_ = std::move(other.context_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  address_ = std::exchange(other.address_, 0);
  return *this;
}

void RegisteredMemory::Unregister() noexcept {
  if (data_ == nullptr) return;
  const ScopedContext current(*context_);
  context_->driver().cuMemHostUnregister(data_);
  data_ = nullptr;
}

}  // namespace ringd
