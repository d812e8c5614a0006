#include "backends/cuda/device_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/stream_status.h"

namespace ringd {
namespace {

// What CUDA says of a pointer that it does not know.
bool IsUnknown(CUresult result) {
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_FOUND;
}

// Of the allocation with this byte.
absl::Status CheckByte(const CudaContext& context, DeviceAddress address) {
  const CudaDriver& cuda = context.driver();
  unsigned type = 0;
  CUresult result = cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (IsUnknown(result)) {
    return absl::InvalidArgumentError(
        "it is not in device memory: CUDA knows no memory there (it is the host's, or freed)");
  }
  if (result == CUDA_SUCCESS && type != CU_MEMORYTYPE_DEVICE) {
    return absl::InvalidArgumentError(
        "it is not in device memory: CUDA knows it as page-locked memory of the host");
  }
  int ordinal = 0;
  if (result == CUDA_SUCCESS) {
    result = cuda.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  }
  if (result != CUDA_SUCCESS) return CudaStatus(cuda, "cuPointerGetAttribute", result);
  if (ordinal == context.ordinal()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it is in memory of GPU ", ordinal,
                                                 ", and this context has opened GPU ",
                                                 context.ordinal(), " (", context.uuid(), ")"));
}

}  // namespace

absl::Status CheckOnDevice(const CudaContext& context, DeviceAddress address, std::uint64_t bytes) {
  const ScopedContext current(context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context.driver();
  if (bytes > UINT64_MAX - address) {
    return absl::InvalidArgumentError("it ends beyond all addresses");
  }
  const DeviceAddress end = address + bytes;
  for (DeviceAddress at = address; at < end;) {
    const absl::Status status = CheckByte(context, at);
    if (absl::IsInvalidArgument(status) && at != address) {
      return absl::InvalidArgumentError(
          absl::StrCat("only its first ", at - address, " of ", bytes,
                       " bytes are in one piece of this GPU's memory"));
    }
    if (!status.ok()) return status;
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult result = cuda.cuMemGetAddressRange(&base, &size, at);
    if (result != CUDA_SUCCESS) return CudaStatus(cuda, "cuMemGetAddressRange", result);
    at = std::max<DeviceAddress>(at + 1, base + size);
  }
  return absl::OkStatus();
}

absl::Status EnqueueCopy(const CudaContext& context, DeviceAddress to, DeviceAddress from,
                         std::uint64_t bytes, StreamHandle stream) {
  const ScopedContext current(context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context.driver();
  const CUresult result = cuda.cuMemcpyDtoDAsync(to, from, bytes, static_cast<CUstream>(stream));
  return StreamStatus(context, "cuMemcpyDtoDAsync", result);
}

absl::Status EnqueueCopyToHost(const CudaContext& context, void* to, DeviceAddress from,
                               std::uint64_t bytes, StreamHandle stream) {
  const ScopedContext current(context);
  if (!current.status().ok()) return current.status();
  const CUresult result =
      context.driver().cuMemcpyDtoHAsync(to, from, bytes, static_cast<CUstream>(stream));
  return StreamStatus(context, "cuMemcpyDtoHAsync", result);
}

absl::Status EnqueueCopyFromHost(const CudaContext& context, DeviceAddress to, const void* from,
                                 std::uint64_t bytes, StreamHandle stream) {
  const ScopedContext current(context);
  if (!current.status().ok()) return current.status();
  const CUresult result =
      context.driver().cuMemcpyHtoDAsync(to, from, bytes, static_cast<CUstream>(stream));
  return StreamStatus(context, "cuMemcpyHtoDAsync", result);
}

}  // namespace ringd
