// The name by which a GPU is the same in every process.
#ifndef RINGD_BACKENDS_CUDA_GPU_UUID_H_
#define RINGD_BACKENDS_CUDA_GPU_UUID_H_

#include <string>

#include "absl/status/status.h"
#include "backends/cuda/cuda_driver.h"

namespace ringd {

// Whether a device of that name (cuDeviceGetName) is an instance of a divided GPU. CUDA has no
// attribute for it; such a name ends in its profile: "... MIG 1g.10gb".
bool IsMigInstance(const std::string& name);

// Writes the name and the UUID of `device`, the latter as nvidia-smi does: "GPU-...", or of an
// instance "MIG-...". Makes no context. As CudaStatus says.
absl::Status IdentifyGpu(const CudaDriver& cuda, CUdevice device, std::string* name,
                         std::string* uuid);

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_GPU_UUID_H_
