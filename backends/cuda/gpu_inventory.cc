#include "backends/cuda/gpu_inventory.h"

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/gpu_uuid.h"
#include "proto/base/read_file.h"

namespace ringd {
namespace {

// The line that a file of the kernel's has; empty if it can't be read.
std::string LineOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 4096);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

// Asks one driver about one GPU after the other.
class Inquiry {
 public:
  explicit Inquiry(const CudaDriver& cuda) : cuda_(cuda) {}

  absl::Status CountGpus(int* count) const {
    return Check("cuDeviceGetCount", cuda_.cuDeviceGetCount(count));
  }

  absl::Status Describe(GpuDescription* gpu) const {
    CUdevice device = 0;
    if (auto status = Check("cuDeviceGet", cuda_.cuDeviceGet(&device, gpu->ordinal));
        !status.ok()) {
      return status;
    }
    if (auto status = Identify(device, gpu); !status.ok()) return status;
    gpu->compute_major = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device, 0);
    gpu->compute_minor = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device, 0);
    gpu->has_stream_memory_operations =
        Attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device, 0) == 1;
    gpu->numa_node = NumaNode(device, gpu->pci_address);
    const int mps = Attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device, -1);
    if (mps >= 0) gpu->is_under_mps = mps == 1;
    return absl::OkStatus();
  }

  absl::Status FindPeers(int count, GpuDescription* gpu) const {
    for (int other = 0; other < count; ++other) {
      if (other == gpu->ordinal) continue;
      int can = 0;
      if (auto status = Check("cuDeviceCanAccessPeer",
                              cuda_.cuDeviceCanAccessPeer(&can, gpu->ordinal, other));
          !status.ok()) {
        return status;
      }
      if (can == 1) gpu->peers.push_back(other);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const char* what, CUresult result) const {
    return CudaStatus(cuda_, what, result);
  }

  // Name, number, memory and place.
  absl::Status Identify(CUdevice device, GpuDescription* gpu) const {
    if (auto status = IdentifyGpu(cuda_, device, &gpu->name, &gpu->uuid); !status.ok()) {
      return status;
    }
    gpu->is_mig_instance = IsMigInstance(gpu->name);
    std::size_t bytes = 0;
    if (auto status = Check("cuDeviceTotalMem", cuda_.cuDeviceTotalMem(&bytes, device));
        !status.ok()) {
      return status;
    }
    gpu->memory_bytes = bytes;
    char address[64] = "";
    const CUresult placed = cuda_.cuDeviceGetPCIBusId(address, sizeof address, device);
    gpu->pci_address = absl::AsciiStrToLower(address);
    return Check("cuDeviceGetPCIBusId", placed);
  }

  // `otherwise` for what the driver does not know.
  int Attribute(CUdevice_attribute attribute, CUdevice device, int otherwise) const {
    int value = 0;
    return cuda_.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value
                                                                                 : otherwise;
  }

  // By the driver, which knows since CUDA 12.2, else by the kernel.
  int NumaNode(CUdevice device, const std::string& pci_address) const {
    const int told = Attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device, -1);
    int node = -1;
    if (told >= 0 ||
        !absl::SimpleAtoi(LineOf(absl::StrCat("/sys/bus/pci/devices/", pci_address, "/numa_node")),
                          &node)) {
      return told;
    }
    return node;
  }

  const CudaDriver& cuda_;
};

}  // namespace

absl::Status TakeGpuInventory(const std::string& library, const InventorySteps& steps,
                              GpuInventory* inventory) {
  inventory->kernel_driver = LineOf("/sys/module/nvidia/version");
  steps(absl::StrCat("opening ", library), *inventory);
  const auto cuda = CudaDriver::Open(library);
  if (!cuda.ok()) return cuda.status();
  inventory->cuda_version = CudaVersionText((*cuda)->version);
  steps("initialising the driver (cuInit)", *inventory);
  if (auto status = CudaStatus(**cuda, "cuInit", (*cuda)->cuInit(0)); !status.ok()) return status;
  const Inquiry inquiry(**cuda);
  int count = 0;
  if (auto status = inquiry.CountGpus(&count); !status.ok()) return status;
  if (count == 0) return absl::FailedPreconditionError("the driver has no GPU");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    steps(absl::StrCat("asking about GPU ", ordinal), *inventory);
    GpuDescription gpu;
    gpu.ordinal = ordinal;
    absl::Status status = inquiry.Describe(&gpu);
    if (status.ok()) status = inquiry.FindPeers(count, &gpu);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("GPU ", ordinal, ": ", status.message()));
    }
    inventory->gpus.push_back(std::move(gpu));
  }
  return absl::OkStatus();
}

}  // namespace ringd
