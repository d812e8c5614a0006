#include "backends/cuda/gpu_inventory.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd {
namespace {

using emulator::Child;
using emulator::RunEmulated;

// Asks the emulated driver; what it says of the steps is not looked at.
absl::Status Take(GpuInventory* inventory, const std::string& library = emulator::kLibrary) {
  return TakeGpuInventory(
      library, [](const std::string&, const GpuInventory&) {}, inventory);
}

TEST_CASE("TakeGpuInventory: names the driver and describes each GPU") {
  CHECK(RunEmulated({{"DEVICES", "2"}, {"MEMORY_MIB", "512"}}, [](const Child& child) {
          GpuInventory found;
          CHILD_CHECK(Take(&found).ok());
          CHILD_CHECK(found.cuda_version == "13.0");
          CHILD_CHECK(found.gpus.size() == 2);
          const GpuDescription& gpu = found.gpus[1];
          CHILD_CHECK(gpu.ordinal == 1);
          // "ringd-emulated", then what tells instances and GPUs apart.
          CHILD_CHECK(gpu.uuid == "GPU-72696e67-642d-656d-756c-617465640001");
          CHILD_CHECK(gpu.name == "ringd emulated GPU");
          CHILD_CHECK(gpu.memory_bytes == std::uint64_t{512} << 20);
          CHILD_CHECK(gpu.pci_address == "0000:02:00.0");
          CHILD_CHECK(gpu.numa_node == 0);
          CHILD_CHECK(gpu.compute_major == 9 && gpu.compute_minor == 0);
          CHILD_CHECK(!gpu.is_mig_instance);
          CHILD_CHECK(gpu.is_under_mps == false);
          CHILD_CHECK(gpu.has_stream_memory_operations);
          CHILD_CHECK(gpu.peers == std::vector<int>{0});
        }) == "");
}

TEST_CASE("TakeGpuInventory: makes no context") {
  CHECK(RunEmulated({}, [](const Child& child) {
          GpuInventory found;
          CHILD_CHECK(Take(&found).ok());
          CHILD_CHECK(child.emulator().calls("cuDevicePrimaryCtxRetain") == 0);
          CHILD_CHECK(child.emulator().calls("allocating") == 0);
        }) == "");
}

TEST_CASE("TakeGpuInventory: instances of a divided GPU, MPS, and what is missing") {
  const emulator::Variables settings = {{"DEVICES", "2"},
                                        {"MIG", "1"},
                                        {"MPS", "on"},
                                        {"PEER_ACCESS", "0"},
                                        {"STREAM_MEMORY_OPERATIONS", "0"}};
  CHECK(RunEmulated(settings, [](const Child& child) {
          GpuInventory found;
          CHILD_CHECK(Take(&found).ok());
          const GpuDescription& gpu = found.gpus[0];
          CHILD_CHECK(gpu.is_mig_instance);
          CHILD_CHECK(gpu.uuid == "MIG-72696e67-642d-656d-756c-617465640100");
          CHILD_CHECK(gpu.is_under_mps == true);
          CHILD_CHECK(gpu.peers.empty());
          CHILD_CHECK(!gpu.has_stream_memory_operations);
        }) == "");
}

TEST_CASE("TakeGpuInventory: tells each step before it, and what is known by then") {
  CHECK(RunEmulated({{"DEVICES", "2"}}, [](const Child& child) {
          std::vector<std::string> told;
          GpuInventory found;
          const auto steps = [&told](const std::string& step, const GpuInventory& known) {
            told.push_back(step + ": " + known.cuda_version + ", " +
                           std::to_string(known.gpus.size()));
          };
          CHILD_CHECK(TakeGpuInventory(emulator::kLibrary, steps, &found).ok());
          CHILD_CHECK((told == std::vector<std::string>{
                                   std::string("opening ") + emulator::kLibrary + ": , 0",
                                   "initialising the driver (cuInit): 13.0, 0",
                                   "asking about GPU 0: 13.0, 0", "asking about GPU 1: 13.0, 1"}));
        }) == "");
}

TEST_CASE("TakeGpuInventory: no driver and no GPU are errors that say so") {
  GpuInventory nothing;
  CHECK(absl::IsNotFound(Take(&nothing, "/no/such/libcuda.so.1")));
  CHECK(nothing.cuda_version.empty());
  CHECK(RunEmulated({{"DEVICES", "0"}}, [](const Child& child) {
          GpuInventory found;
          const absl::Status status = Take(&found);
          CHILD_CHECK(absl::IsFailedPrecondition(status));
          CHILD_CHECK(found.cuda_version == "13.0");
          CHILD_CHECK(found.gpus.empty());
        }) == "");
}

}  // namespace
}  // namespace ringd
