// CUDA's virtual memory management: allocations, addresses, and which goes where.
#include <cuda.h>
#include <fcntl.h>

#include <cstdint>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Allocation;
using ringd::emulator::Call;
using ringd::emulator::kAllocates;
using ringd::emulator::kGranularity;
using ringd::emulator::kInitialised;
using ringd::emulator::Process;

namespace {

// A pinned allocation on one of our devices, for descriptors or for nobody else.
bool IsOffered(Process& process, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return false;
  }
  const auto types = static_cast<unsigned>(properties->requestedHandleTypes);
  const bool is_known =
      types == CU_MEM_HANDLE_TYPE_NONE || types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return is_known && process.context(properties->location.id) != nullptr;
}

// Virtual memory belongs to no context. The device's own number stands for "none" here.
constexpr int kNoContext = -1;

}  // namespace

CUresult cuMemGetAllocationGranularity(std::size_t* granularity,
                                       const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  const Call call("cuMemGetAllocationGranularity", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (granularity == nullptr || !IsOffered(call.process(), properties)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  const Call call("cuMemCreate", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (handle == nullptr || flags != 0 || !IsOffered(call.process(), properties) || bytes == 0 ||
      bytes % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool exportable = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
  auto made =
      Allocation::Create(call.process().machine(), properties->location.id, bytes, exportable);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = call.process().AddHandle(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Call call("cuMemRelease", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return call.process().RemoveHandle(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressReserve(CUdeviceptr* pointer, std::size_t bytes, std::size_t alignment,
                             CUdeviceptr, unsigned long long flags) {
  const Call call("cuMemAddressReserve", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const bool is_power = (alignment & (alignment - 1)) == 0;
  if (pointer == nullptr || flags != 0 || !is_power || alignment > kGranularity) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return call.process().memory().Reserve(pointer, bytes);
}

CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  const Call call("cuMemAddressFree", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return call.process().memory().Unreserve(pointer, bytes);
}

CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Call call("cuMemMap", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  auto allocation = call.process().FindHandle(handle);
  if (allocation == nullptr || offset != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return call.process().memory().Map(pointer, bytes, std::move(allocation), kNoContext);
}

CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  const Call call("cuMemUnmap", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  return call.process().memory().Unmap(pointer, bytes);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc* wanted,
                        std::size_t count) {
  const Call call("cuMemSetAccess", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (wanted == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (wanted[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (call.process().context(wanted[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const bool may = wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult result =
        call.process().memory().SetAccess(pointer, bytes, wanted[i].location.id, may);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  const Call call("cuMemExportToShareableHandle", kInitialised);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const auto allocation = call.process().FindHandle(handle);
  if (shareable == nullptr || flags != 0 || allocation == nullptr || !allocation->exportable() ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int descriptor = ::fcntl(allocation->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(shareable) = descriptor;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        CUmemAllocationHandleType type) {
  const Call call("cuMemImportFromShareableHandle", kInitialised | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  auto imported = Allocation::Import(descriptor);
  if (imported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.process().context(imported->device()) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *handle = call.process().AddHandle(std::move(imported));
  return CUDA_SUCCESS;
}
