// `ringctl gpus`, and what `ringctl status` and `ringctl comms` say of GPUs.
#include <catch2/catch.hpp>
#include <string>

#include "client/cli/views/views.h"

namespace ringd::cli {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

v1::GpusReply TwoGpus() {
  v1::GpusReply reply;
  reply.set_state("found");
  reply.set_kernel_driver("580.95.05");
  reply.mutable_cuda()->set_file("libcuda.so.1");
  reply.mutable_cuda()->set_version("13.0");
  reply.mutable_nccl()->set_file("libnccl.so.2");
  reply.mutable_nccl()->set_version("2.32.3");
  for (int i = 0; i < 2; ++i) {
    v1::Gpu* const gpu = reply.add_gpus();
    gpu->set_ordinal(i);
    gpu->set_uuid("GPU-0123-" + std::to_string(i));
    gpu->set_name("NVIDIA H100 80GB HBM3");
    gpu->set_memory_bytes(std::uint64_t{80} << 30);
    gpu->set_pci_address("0000:17:00.0");
    gpu->set_numa_node(i == 0 ? 1 : -1);
    gpu->set_compute_capability("9.0");
    gpu->set_mps(i == 0 ? "on" : "");
    gpu->set_mig(i == 1);
    if (i == 0) gpu->add_peers(1);
  }
  return reply;
}

TEST_CASE("RenderGpus: libraries, a row for each GPU, and that nothing has run on one") {
  const std::string text = RenderGpus(TwoGpus(), {});
  CHECK_THAT(text, StartsWith("GPUs: 2\n"));
  CHECK_THAT(text, Contains("  CUDA driver     libcuda.so.1, CUDA 13.0\n"));
  CHECK_THAT(text, Contains("  in the kernel   580.95.05\n"));
  CHECK_THAT(text, Contains("  NCCL            libnccl.so.2, NCCL 2.32.3\n"));
  CHECK_THAT(text, Contains("  0  NVIDIA H100 80GB HBM3  80 GiB     1  on   no   1      9.0  "
                            "0000:17:00.0  GPU-0123-0\n"));
  CHECK_THAT(text, Contains("  1  NVIDIA H100 80GB HBM3  80 GiB     -  ?    yes  -      9.0  "
                            "0000:17:00.0  GPU-0123-1\n"));
  CHECK_THAT(text, Contains("it has not yet run on a GPU.\n"));
}

TEST_CASE("RenderGpus: a GPU that is known to be without MPS has the reason to change that") {
  v1::GpusReply reply = TwoGpus();
  CHECK_THAT(RenderGpus(reply, {}), !Contains("ringd-mps.service"));
  reply.mutable_gpus(0)->set_mps("off");
  CHECK_THAT(RenderGpus(reply, {}),
             Contains("  without MPS     ") && Contains("ringd-mps.service"));
}

TEST_CASE("RenderGpus: fits 80 columns") {
  const std::string text = RenderGpus(TwoGpus(), {.width = 80});
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line.find("ringd's use of") == std::string::npos) CHECK(line.size() <= 80);
    begin = end + 1;
  }
}

TEST_CASE("RenderGpus: why there are none, or why that is not known") {
  v1::GpusReply reply;
  reply.set_state("none");
  reply.mutable_cuda()->set_file("libcuda.so.1");
  reply.mutable_cuda()->set_problem("it can't be loaded: libcuda.so.1: No such file");
  reply.mutable_nccl()->set_problem("nccl_library is not set");
  const std::string text = RenderGpus(reply, {});
  CHECK_THAT(text, StartsWith("GPUs: none\n"));
  CHECK_THAT(text, Contains("CUDA driver     it can't be loaded: libcuda.so.1: No such file\n"));
  CHECK_THAT(text, Contains("NCCL            nccl_library is not set\n"));
  CHECK_THAT(text, !Contains("MEMORY"));
  reply.set_state("failed");
  reply.mutable_cuda()->set_version("13.0");
  reply.mutable_cuda()->set_problem("the probe was killed");
  CHECK_THAT(RenderGpus(reply, {}),
             StartsWith("GPUs: not known\n") &&
                 Contains("CUDA driver     libcuda.so.1, CUDA 13.0: the probe was killed\n"));
  reply.set_state("looking");
  CHECK(RenderGpus(reply, {}) == "GPUs: ringd still looks for them\n");
}

TEST_CASE("RenderStatus: GPUs in a line, none from an older ringd") {
  v1::StatusReply reply;
  CHECK_THAT(RenderStatus(reply, {}), !Contains("GPUs"));
  reply.set_gpus("2 (NVIDIA H100), CUDA 13.0, NCCL 2.32.3");
  CHECK_THAT(RenderStatus(reply, {}),
             Contains("  GPUs            2 (NVIDIA H100), CUDA 13.0, NCCL 2.32.3\n"));
}

TEST_CASE("RenderCommunicators: a line for each rank's GPU, and one for all without MPS") {
  v1::CommunicatorsReply reply;
  v1::Communicator& communicator = *reply.add_communicators();
  communicator.set_size(2);
  CHECK_THAT(RenderCommunicators(reply, {}), !Contains("GPU") && !Contains("MPS"));
  v1::CommunicatorDevice& device = *communicator.add_devices();
  device.set_rank(1);
  device.set_gpu("GPU-0123");
  device.set_mps("on");
  device.set_nccl_version("2.29.7");
  device.set_nccl_rank(0);
  device.set_state("ready");
  device.set_slab_bytes(64 << 20);
  device.set_fusion_bytes(8 << 20);
  device.set_launched_by("engine");
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("  GPU             rank 1 on GPU-0123: NCCL 2.29.7, its rank 0 of 2, ready; "
                      "slab of 64 MiB, 8 MiB for packing; the engine launches\n") &&
                 !Contains("MPS"));
  device.set_registered_bytes(72 << 20);
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("8 MiB for packing, 72 MiB registered; the engine launches"));
  device.set_registered_bytes(0);
  device.set_why_not_registered("another rank can't register its memory");
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("packing, none registered (another rank can't register its memory); the"));
  device.clear_registered_bytes();
  device.set_state("failed");
  device.set_error("NCCL has failed: remote process exited");
  *communicator.add_devices() = device;
  device.set_mps("off");
  const std::string text = RenderCommunicators(reply, {});
  CHECK_THAT(text, Contains("failed (NCCL has failed: remote process exited); slab"));
  const std::size_t first = text.find("ringd-mps.service");
  CHECK(first != std::string::npos);
  CHECK(text.find("ringd-mps.service", first + 1) == std::string::npos);
  for (auto& one : *communicator.mutable_devices()) one.set_launched_by("trainer");
  CHECK_THAT(RenderCommunicators(reply, {}),
             Contains("the trainer launches") && !Contains("ringd-mps.service"));
}

}  // namespace
}  // namespace ringd::cli
