#include "backends/device/gpu_parts.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ringd {

absl::StatusOr<GpuParts> GpuParts::Open(const std::string& cuda_library,
                                        const std::string& nccl_library, const std::string& uuid) {
  GpuParts parts;
  auto driver = OpenCudaDriver(cuda_library);
  if (!driver.ok()) return driver.status();
  auto context = CudaContext::OpenByUuid(*std::move(driver), uuid);
  if (!context.ok()) return context.status();
  parts.context = *std::move(context);
  parts.context->IgnoreCaptures();
  if (!parts.context->has_stream_memory_operations()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU ", uuid, " has no 64-bit stream memory operations, by which ringd orders streams"));
  }
  auto kernel = MoveKernel::Load(parts.context);
  if (!kernel.ok()) return kernel.status();
  parts.kernel = *std::move(kernel);
  auto nccl = OpenNccl(nccl_library);
  if (!nccl.ok()) return nccl.status();
  parts.nccl = *std::move(nccl);
  return parts;
}

}  // namespace ringd
