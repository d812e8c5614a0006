#include "backends/cuda/memory_properties.h"

#include <cstdint>

namespace ringd {

CUmemAllocationProp ExportableOn(const CudaContext& context) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context.ordinal();
  // Else network cards can't reach it, and NCCL copies what it sends.
  int has_rdma = 0;
  const CUresult told = context.driver().cuDeviceGetAttribute(
      &has_rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, context.ordinal());
  if (told == CUDA_SUCCESS && has_rdma == 1) properties.allocFlags.gpuDirectRDMACapable = 1;
  return properties;
}

absl::StatusOr<std::size_t> WholeGranules(const CudaContext& context,
                                          const CUmemAllocationProp& properties,
                                          std::size_t bytes) {
  std::size_t granule = 0;
  const CUresult result = context.driver().cuMemGetAllocationGranularity(
      &granule, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (auto status = CudaStatus(context.driver(), "cuMemGetAllocationGranularity", result);
      !status.ok()) {
    return status;
  }
  // So much is nowhere: the driver says so.
  if (bytes > SIZE_MAX - granule) return SIZE_MAX / granule * granule;
  return (bytes + granule - 1) / granule * granule;
}

absl::Status MapForGpu(const CudaContext& context, CUmemGenericAllocationHandle handle,
                       std::size_t bytes, DeviceAddress* address, bool* is_mapped) {
  const CudaDriver& cuda = context.driver();
  CUdeviceptr reserved = 0;
  if (auto status = CudaStatus(cuda, "cuMemAddressReserve",
                               cuda.cuMemAddressReserve(&reserved, bytes, 0, 0, 0));
      !status.ok()) {
    return status;
  }
  *address = reserved;
  if (auto status = CudaStatus(cuda, "cuMemMap", cuda.cuMemMap(reserved, bytes, 0, handle, 0));
      !status.ok()) {
    return status;
  }
  *is_mapped = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = context.ordinal();
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CudaStatus(cuda, "cuMemSetAccess", cuda.cuMemSetAccess(reserved, bytes, &access, 1));
}

}  // namespace ringd
