#include "backends/cuda/mapped_memory.h"

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/memory_properties.h"

namespace ringd {

absl::StatusOr<MappedMemory> MappedMemory::Create(std::shared_ptr<const CudaContext> context,
                                                  std::size_t bytes) {
  MappedMemory memory;
  if (bytes == 0) return memory;
  const CudaDriver& cuda = context->driver();
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CUmemAllocationProp properties = ExportableOn(*context);
  const auto whole = WholeGranules(*context, properties, bytes);
  if (!whole.ok()) return whole.status();
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = cuda.cuMemCreate(&handle, *whole, &properties, 0);
  if (auto status = CudaStatus(
          cuda, absl::StrCat("cuMemCreate of ", *whole, " bytes on GPU ", context->uuid()),
          created);
      !status.ok()) {
    return status;
  }
  memory.context_ = context;
  memory.handle_ = handle;
  memory.bytes_ = *whole;
  if (auto status = MapForGpu(*context, handle, *whole, &memory.address_, &memory.is_mapped_);
      !status.ok()) {
    return status;
  }
  return memory;
}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  if (this == &other) return *this;
  Free();
  context_ = std::move(other.context_);
  handle_ = other.handle_;
  address_ = std::exchange(other.address_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  is_mapped_ = std::exchange(other.is_mapped_, false);
  return *this;
}

void MappedMemory::Free() noexcept {
  if (context_ == nullptr) return;
  const std::shared_ptr<const CudaContext> context = std::move(context_);
  const CudaDriver& cuda = context->driver();
  if (is_mapped_) cuda.cuMemUnmap(address_, bytes_);
  if (address_ != 0) cuda.cuMemAddressFree(address_, bytes_);
  cuda.cuMemRelease(handle_);
}

}  // namespace ringd
