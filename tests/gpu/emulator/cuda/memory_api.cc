// CUDA's functions that allocate device memory, register host memory, and say what a pointer is.
#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "tests/gpu/emulator/cuda/process.h"

using ringd::emulator::Allocation;
using ringd::emulator::Call;
using ringd::emulator::kAllocates;
using ringd::emulator::kAnyDevice;
using ringd::emulator::kContext;
using ringd::emulator::kSynchronises;
using ringd::emulator::Mapping;
using ringd::emulator::MappingKind;
using ringd::emulator::View;

namespace {

constexpr unsigned kAllDevices = ~0U;

// Whether the host may read all of it.
bool IsMappedHere(const void* memory, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(memory) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(memory) + bytes;
  std::vector<unsigned char> resident((end - begin + page - 1) / page);
  return ::mincore(reinterpret_cast<void*>(begin), end - begin, resident.data()) == 0;
}

}  // namespace

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  const Call call("cuMemGetInfo", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *free = call.process().machine().FreeMemory(call.device());
  *total = call.process().settings().memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* pointer, std::size_t bytes) {
  const Call call("cuMemAlloc", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  auto made = Allocation::Create(call.process().machine(), call.device(), bytes, false);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const unsigned own = 1U << static_cast<unsigned>(call.device());
  *pointer = call.process().memory().Add(std::move(made), bytes, MappingKind::kAllocated, own,
                                         call.device());
  return *pointer == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer) {
  const Call call("cuMemFree", kContext | kAllocates | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (pointer == 0) return CUDA_SUCCESS;
  const View view = call.process().memory().Find(pointer, 1, kAnyDevice);
  if (view.alias == nullptr || view.mapping.begin != pointer ||
      view.mapping.kind != MappingKind::kAllocated) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  call.process().WaitToFree(view.mapping.allocation->device());
  call.process().memory().Remove(pointer, MappingKind::kAllocated);
  return call.process().machine().sticky();
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr pointer) {
  const Call call("cuMemGetAddressRange", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const View view = call.process().memory().Find(pointer, 1, kAnyDevice);
  if (view.alias == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = view.mapping.begin;
  if (bytes != nullptr) *bytes = view.mapping.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned int flags) {
  const Call call("cuMemHostAlloc", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const made =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  call.process().memory().AddHost(Allocation::OfHost(made, bytes, /*owned=*/true), call.device(),
                                  (flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0);
  *memory = made;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* memory) {
  const Call call("cuMemFreeHost", kContext | kAllocates | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  call.process().WaitToFree(call.device());
  const bool removed = call.process().memory().Remove(reinterpret_cast<CUdeviceptr>(memory),
                                                      MappingKind::kHostAllocated);
  return removed ? call.process().machine().sticky() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister(void* memory, std::size_t bytes, unsigned int flags) {
  const Call call("cuMemHostRegister", kContext | kAllocates);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (memory == nullptr || bytes == 0 || !IsMappedHere(memory, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  // A pointer of the device is no host memory, though something is mapped there.
  if (call.process().memory().Find(address, 1, kAnyDevice).alias != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  char* const last = static_cast<char*>(memory) + bytes - 1;
  if (call.process().memory().FindHost(memory).alias != nullptr ||
      call.process().memory().FindHost(last).alias != nullptr) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  const bool is_mapped = (flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0;
  const CUdeviceptr device_pointer = call.process().memory().Add(
      Allocation::OfHost(memory, bytes, /*owned=*/false), bytes, MappingKind::kHostRegistered,
      is_mapped ? kAllDevices : 0, call.device());
  return device_pointer == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* memory) {
  const Call call("cuMemHostUnregister", kContext | kAllocates | kSynchronises);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  const View view = call.process().memory().FindHost(memory);
  if (view.alias == nullptr || view.mapping.kind != MappingKind::kHostRegistered) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  if (view.mapping.allocation->alias() != memory) return CUDA_ERROR_INVALID_VALUE;
  call.process().WaitToFree(call.device());
  call.process().memory().Remove(view.mapping.begin, MappingKind::kHostRegistered);
  return call.process().machine().sticky();
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* pointer, void* memory, unsigned int flags) {
  const Call call("cuMemHostGetDevicePointer", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const View view = call.process().memory().FindHost(memory);
  const bool is_mapped =
      view.alias != nullptr && view.mapping.has_device_pointer && view.mapping.accessible_by != 0;
  if (!is_mapped) return CUDA_ERROR_INVALID_VALUE;
  *pointer =
      view.mapping.begin + static_cast<CUdeviceptr>(view.alias - view.mapping.allocation->alias());
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Call call("cuPointerGetAttribute", kContext);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  View view = call.process().memory().Find(pointer, 1, kAnyDevice);
  if (view.alias == nullptr) {
    view = call.process().memory().FindHost(reinterpret_cast<void*>(pointer));
  }
  if (data == nullptr || view.alias == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Mapping& mapping = view.mapping;
  const bool is_host = mapping.allocation->device() < 0;
  const auto offset = static_cast<CUdeviceptr>(view.alias - mapping.allocation->alias());
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // Mapped memory belongs to no context.
      if (mapping.kind == MappingKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUcontext*>(data) =
          reinterpret_cast<CUcontext>(call.process().context(mapping.context_device));
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (!mapping.has_device_pointer || mapping.accessible_by == 0)
        return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = mapping.begin + offset;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!is_host) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(data) = view.alias;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = is_host ? mapping.context_device : mapping.allocation->device();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = mapping.begin;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(data) = mapping.bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
