#include "daemon/gpu/gpu_probe.h"

#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "backends/cuda/gpu_inventory.h"
#include "backends/nccl/nccl_api.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"
#include "proto/base/write_all.h"
#include "proto/rpc/gpus.pb.h"

namespace ringd {
namespace {

constexpr unsigned kLongestSeconds = 60;
constexpr rlim_t kMostDescriptors = 1024;

void Limit(decltype(RLIMIT_CPU) resource, rlim_t most) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return;
  limit.rlim_max = limit.rlim_max < most ? limit.rlim_max : most;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(resource, &limit);
}

// A library that spins, leaks or hangs takes nothing from ringd and its jobs. Address space is left
// alone: CUDA reserves as much of it as all GPUs and the host have memory.
void LimitThisProcess() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(kLongestSeconds);
  Limit(RLIMIT_CPU, kLongestSeconds);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NOFILE, kMostDescriptors);
  // The first to go when memory runs out.
  std::ofstream("/proc/self/oom_score_adj") << 1000;
  ::setpriority(PRIO_PROCESS, 0, 10);
}

class Report {
 public:
  explicit Report(UniqueFd out) : out_(std::move(out)) {}

  v1::GpuFindings findings;

  // A whole line at once: it is far below what a pipe takes as one piece of.
  void Print(const std::string& step) {
    findings.set_step(step);
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string line;
    if (!google::protobuf::util::MessageToJsonString(findings, &line, options).ok()) return;
    line += '\n';
    if (WriteAll(out_.get(), line) != 0) ::_exit(1);  // nobody listens
  }

 private:
  const UniqueFd out_;
};

void Write(const GpuDescription& gpu, v1::Gpu* out) {
  out->set_ordinal(gpu.ordinal);
  out->set_uuid(gpu.uuid);
  out->set_name(CleanLine(gpu.name));
  out->set_memory_bytes(gpu.memory_bytes);
  out->set_pci_address(CleanLine(gpu.pci_address));
  out->set_numa_node(gpu.numa_node);
  out->set_compute_capability(absl::StrCat(gpu.compute_major, ".", gpu.compute_minor));
  out->set_mig(gpu.is_mig_instance);
  if (gpu.is_under_mps.has_value()) out->set_mps(*gpu.is_under_mps ? "on" : "off");
  out->set_stream_memory_operations(gpu.has_stream_memory_operations);
  for (const int peer : gpu.peers) out->add_peers(peer);
}

void Write(const GpuInventory& inventory, v1::GpuFindings* findings) {
  findings->mutable_library()->set_version(inventory.cuda_version);
  findings->set_kernel_driver(CleanLine(inventory.kernel_driver));
  findings->clear_gpus();
  for (const GpuDescription& gpu : inventory.gpus) Write(gpu, findings->add_gpus());
}

absl::Status ProbeCuda(const std::string& file, Report& report) {
  GpuInventory inventory;
  const InventorySteps steps = [&report](const std::string& step, const GpuInventory& known) {
    Write(known, &report.findings);
    report.Print(step);
  };
  const absl::Status status = TakeGpuInventory(file, steps, &inventory);
  Write(inventory, &report.findings);
  return status;
}

absl::Status ProbeNccl(const std::string& file, Report& report) {
  report.Print(absl::StrCat("opening ", CleanLine(file)));
  const auto nccl = NcclApi::Open(file);
  if (!nccl.ok()) return nccl.status();
  report.findings.mutable_library()->set_version(NcclVersionText((*nccl)->version));
  return absl::OkStatus();
}

}  // namespace

void ProbeGpus(ProbedLibrary library, const std::string& file) {
  LimitThisProcess();
  UniqueFd out(::dup(STDOUT_FILENO));
  if (!out.valid() || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) ::_exit(1);
  Report report(std::move(out));
  report.findings.mutable_library()->set_file(CleanLine(file));
  const absl::Status status =
      library == ProbedLibrary::kCuda ? ProbeCuda(file, report) : ProbeNccl(file, report);
  report.findings.mutable_library()->set_problem(CleanLine(status.message()));
  report.Print("");
  // Not by way of the library's own destructors, which may hang.
  ::_exit(0);
}

}  // namespace ringd
