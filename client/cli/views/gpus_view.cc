// `ringctl gpus`.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/views/human_units.h"
#include "client/cli/views/table.h"
#include "client/cli/views/view_parts.h"
#include "client/cli/views/views.h"

namespace ringd::cli {
namespace {

// Who sees this list must not believe otherwise.
constexpr char kNotYetRun[] =
    "ringd's use of GPUs has been tested on emulated ones; it has not yet run on a GPU.\n";

std::string Headline(const v1::GpusReply& reply) {
  if (reply.state() == "looking") return "GPUs: ringd still looks for them";
  if (reply.state() == "failed") return "GPUs: not known";
  if (reply.gpus().empty()) return "GPUs: none";
  return absl::StrCat("GPUs: ", reply.gpus_size());
}

// "libnccl.so.2, NCCL 2.32.3", and what is wrong with it.
std::string LibraryText(const v1::VendorLibrary& library, const std::string& product) {
  std::vector<std::string> parts;
  // The loader's words name the file themselves.
  if (!absl::StrContains(library.problem(), library.file())) parts.push_back(library.file());
  if (!library.version().empty()) parts.push_back(absl::StrCat(product, " ", library.version()));
  const std::string text = absl::StrJoin(parts, ", ");
  if (library.problem().empty()) return OrDash(text);
  return absl::StrCat(text, text.empty() ? "" : ": ", library.problem());
}

std::string OrdinalsOf(const v1::Gpu& gpu) {
  return gpu.peers().empty() ? "-" : Ranges(gpu.peers());
}

}  // namespace

std::string RenderGpus(const v1::GpusReply& reply, const Look& look) {
  std::string out = absl::StrCat(Paint(Headline(reply), Colour::kBold, look.colours), "\n");
  if (reply.state() != "looking") {
    absl::StrAppend(&out, Line("CUDA driver", LibraryText(reply.cuda(), "CUDA"), look),
                    Line("in the kernel", OrDash(reply.kernel_driver()), look),
                    Line("NCCL", LibraryText(reply.nccl(), "NCCL"), look));
  }
  if (reply.gpus().empty()) return out;
  Table table({{"GPU", Align::kRight},
               {"NAME", Align::kLeft, Fit::kShortened},
               {"MEMORY", Align::kRight},
               {"NUMA", Align::kRight},
               {"MPS"},
               {"MIG"},
               {"PEERS"},
               {"SM", Align::kRight, Fit::kOptional},
               {"PCI", Align::kLeft, Fit::kOptional},
               {"UUID", Align::kLeft, Fit::kShortened}});
  for (const v1::Gpu& gpu : reply.gpus()) {
    table.AddRow({absl::StrCat(gpu.ordinal()), gpu.name(),
                  HumanBytes(static_cast<double>(gpu.memory_bytes())),
                  gpu.numa_node() < 0 ? "-" : absl::StrCat(gpu.numa_node()),
                  gpu.mps().empty() ? "?" : gpu.mps(), gpu.mig() ? "yes" : "no", OrdinalsOf(gpu),
                  gpu.compute_capability(), gpu.pci_address(), gpu.uuid()});
  }
  absl::StrAppend(&out, table.Render(look));
  const bool in_turns = std::any_of(reply.gpus().begin(), reply.gpus().end(),
                                    [](const v1::Gpu& gpu) { return gpu.mps() == "off"; });
  if (in_turns) absl::StrAppend(&out, Line("without MPS", kWithoutMps, look));
  absl::StrAppend(&out, kNotYetRun);
  return out;
}

}  // namespace ringd::cli
