// `ringctl gpus`, and what `ringctl status` says of it.
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
  CHECK_THAT(text, Contains("Nothing of it has been run on a GPU.\n"));
}

TEST_CASE("RenderGpus: fits 80 columns") {
  const std::string text = RenderGpus(TwoGpus(), {.width = 80});
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line.find("ringd does not use") == std::string::npos) CHECK(line.size() <= 80);
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

}  // namespace
}  // namespace ringd::cli
