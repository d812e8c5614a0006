// Which GPUs a node has, as its CUDA driver tells. Names no type of CUDA's.
#ifndef RINGD_BACKENDS_CUDA_GPU_INVENTORY_H_
#define RINGD_BACKENDS_CUDA_GPU_INVENTORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringd {

struct GpuDescription {
  int ordinal = 0;
  std::string uuid;  // "GPU-...", or of an instance of a divided GPU "MIG-..."
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::string pci_address;  // "0000:17:00.0"
  int numa_node = -1;       // -1: not known
  int compute_major = 0;
  int compute_minor = 0;
  bool is_mig_instance = false;
  std::optional<bool> is_under_mps;  // nothing: the driver is too old to say
  bool has_stream_memory_operations = false;
  std::vector<int> peers;  // ordinals of the GPUs whose memory it can use
};

struct GpuInventory {
  std::string cuda_version;   // the newest that the driver knows, "13.0"; empty: not known
  std::string kernel_driver;  // version of the kernel's NVIDIA driver; empty: there is none
  std::vector<GpuDescription> gpus;
};

// Called before each step that may take long or fail: what comes next, such as "initialising the
// driver", and what is known by then.
using InventorySteps = std::function<void(const std::string& step, const GpuInventory& known)>;

// Fills `inventory` by the driver in `library` (as for CudaDriver::Open). Makes no context, so it
// takes no memory of the GPUs. An error leaves what was found before it.
//
// Blocks for as long as the driver does: seconds on a machine whose GPUs sleep, without end if it
// hangs. It may crash, too. So it belongs in a process of its own.
//   kNotFound, kFailedPrecondition: no driver, no GPU, or a driver that is too old.
//   Others as CudaStatus says: the driver fails.
absl::Status TakeGpuInventory(const std::string& library, const InventorySteps& steps,
                              GpuInventory* inventory);

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_GPU_INVENTORY_H_
