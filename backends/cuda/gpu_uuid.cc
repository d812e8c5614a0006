#include "backends/cuda/gpu_uuid.h"

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace ringd {
namespace {

std::string UuidText(const CUuuid& uuid, bool is_mig_instance) {
  std::string text = is_mig_instance ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    absl::StrAppendFormat(&text, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

bool IsMigInstance(const std::string& name) { return absl::StrContains(name, " MIG "); }

absl::Status IdentifyGpu(const CudaDriver& cuda, CUdevice device, std::string* name,
                         std::string* uuid) {
  char text[256] = "";
  if (auto status =
          CudaStatus(cuda, "cuDeviceGetName", cuda.cuDeviceGetName(text, sizeof text, device));
      !status.ok()) {
    return status;
  }
  *name = text;
  CUuuid found{};
  if (auto status = CudaStatus(cuda, "cuDeviceGetUuid", cuda.cuDeviceGetUuid(&found, device));
      !status.ok()) {
    return status;
  }
  *uuid = UuidText(found, IsMigInstance(*name));
  return absl::OkStatus();
}

}  // namespace ringd
