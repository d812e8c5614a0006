// What one GPU's work needs, opened: driver, context, kernels and NCCL.
#ifndef RINGD_BACKENDS_DEVICE_GPU_PARTS_H_
#define RINGD_BACKENDS_DEVICE_GPU_PARTS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/move_kernel.h"
#include "backends/nccl/nccl_communicator.h"

namespace ringd {

// Ownership: shared by whoever uses a part; the libraries stay loaded until the process ends.
struct GpuParts {
  // Blocks for as long as libraries and driver do. The names are as for OpenCudaDriver and
  //   OpenNccl. kNotFound: no such library, or no such GPU.  kFailedPrecondition: one of them is
  //   too old, or lacks what ringd needs.  Others as CudaStatus and NcclStatus say.
  static absl::StatusOr<GpuParts> Open(const std::string& cuda_library,
                                       const std::string& nccl_library, const std::string& uuid);

  std::shared_ptr<const CudaContext> context;
  std::shared_ptr<const MoveKernel> kernel;
  std::shared_ptr<const NcclApi> nccl;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_GPU_PARTS_H_
