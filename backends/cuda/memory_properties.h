// How memory of the driver's virtual memory management is made here.
#ifndef RINGD_BACKENDS_CUDA_MEMORY_PROPERTIES_H_
#define RINGD_BACKENDS_CUDA_MEMORY_PROPERTIES_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/cuda_driver.h"

namespace ringd {

// On the context's GPU, for other processes, network cards and NCCL's registration, too.
CUmemAllocationProp ExportableOn(const CudaContext& context);

// The whole granules of `bytes`. As CudaStatus says.
absl::StatusOr<std::size_t> WholeGranules(const CudaContext& context,
                                          const CUmemAllocationProp& properties, std::size_t bytes);

// Maps `handle` at new addresses of `bytes`, for the context's GPU to read and write. What was done
// before an error is in `address` and `is_mapped`, for the caller to undo. As CudaStatus says.
absl::Status MapForGpu(const CudaContext& context, CUmemGenericAllocationHandle handle,
                       std::size_t bytes, DeviceAddress* address, bool* is_mapped);

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_MEMORY_PROPERTIES_H_
