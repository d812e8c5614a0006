#include "daemon/gpu/gpu_findings.h"

#include <google/protobuf/util/json_util.h>

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ringd {
namespace {

// The newest line that can be read; one that was cut off is not.
v1::GpuFindings LastLine(absl::string_view output) {
  const std::vector<absl::string_view> lines = absl::StrSplit(output, '\n', absl::SkipEmpty());
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    v1::GpuFindings findings;
    if (google::protobuf::util::JsonStringToMessage(std::string(*line), &findings).ok()) {
      return findings;
    }
  }
  return {};
}

}  // namespace

v1::GpuFindings ReadFindings(const ProbeResult& result) {
  v1::GpuFindings findings = LastLine(result.output);
  findings.mutable_library()->set_file(result.file);
  std::string problem;
  if (!result.end.ok()) {
    problem = absl::StrCat("the probe ", result.end.message());
  } else if (!findings.step().empty() || result.output.empty()) {
    problem = "the probe ended too early";
  }
  if (problem.empty()) return findings;
  if (!findings.step().empty()) absl::StrAppend(&problem, ", while ", findings.step());
  if (!result.last_error.empty()) absl::StrAppend(&problem, ": ", result.last_error);
  findings.mutable_library()->set_problem(problem);
  findings.clear_step();
  return findings;
}

v1::GpusReply MergeFindings(const v1::GpuFindings& cuda, const absl::Status& cuda_end,
                            const v1::GpuFindings& nccl) {
  v1::GpusReply reply;
  *reply.mutable_cuda() = cuda.library();
  *reply.mutable_nccl() = nccl.library();
  *reply.mutable_gpus() = cuda.gpus();
  reply.set_kernel_driver(cuda.kernel_driver());
  reply.set_state(!cuda_end.ok() ? "failed" : cuda.gpus().empty() ? "none" : "found");
  return reply;
}

std::string SummaryOf(const v1::GpusReply& reply) {
  if (reply.state() == "looking") return "being looked for";
  if (reply.gpus().empty()) {
    return absl::StrCat(reply.state() == "failed" ? "not known: " : "none: ",
                        reply.cuda().problem());
  }
  std::set<std::string> names;
  for (const v1::Gpu& gpu : reply.gpus()) names.insert(gpu.name());
  std::string text = absl::StrCat(reply.gpus_size(), " (", absl::StrJoin(names, ", "), "), CUDA ",
                                  reply.cuda().version());
  if (!reply.cuda().problem().empty()) absl::StrAppend(&text, ", but ", reply.cuda().problem());
  absl::StrAppend(&text, reply.nccl().problem().empty()
                             ? absl::StrCat(", NCCL ", reply.nccl().version())
                             : absl::StrCat(", no NCCL: ", reply.nccl().problem()));
  return text;
}

}  // namespace ringd
