#include "backends/cuda/device_memory.h"

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"

namespace ringd {

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(std::shared_ptr<const CudaContext> context,
                                                    std::size_t bytes) {
  DeviceMemory memory;
  if (bytes == 0) return memory;
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context->driver();
  CUdeviceptr address = 0;
  const CUresult result = cuda.cuMemAlloc(&address, bytes);
  if (auto status = CudaStatus(
          cuda, absl::StrCat("cuMemAlloc of ", bytes, " bytes on GPU ", context->uuid()), result);
      !status.ok()) {
    return status;
  }
  memory.context_ = std::move(context);
  memory.address_ = address;
  memory.bytes_ = bytes;
  return memory;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this == &other) return *this;
  Free();
  context_ = std::move(other.context_);
  address_ = std::exchange(other.address_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void DeviceMemory::Free() noexcept {
  if (address_ == 0) return;
  const ScopedContext current(*context_);
  context_->driver().cuMemFree(address_);
  address_ = 0;
}

absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(std::shared_ptr<const CudaContext> context,
                                                    std::size_t bytes) {
  PinnedMemory memory;
  if (bytes == 0) return memory;
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context->driver();
  void* data = nullptr;
  const CUresult result = cuda.cuMemHostAlloc(&data, bytes, 0);
  if (auto status = CudaStatus(cuda, absl::StrCat("cuMemHostAlloc of ", bytes, " bytes"), result);
      !status.ok()) {
    return status;
  }
  memory.context_ = std::move(context);
  memory.data_ = data;
  memory.bytes_ = bytes;
  return memory;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this == &other) return *this;
  Free();
  context_ = std::move(other.context_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void PinnedMemory::Free() noexcept {
  if (data_ == nullptr) return;
  const ScopedContext current(*context_);
  context_->driver().cuMemFreeHost(data_);
  data_ = nullptr;
}

}  // namespace ringd
