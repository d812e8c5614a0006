// What comes of a look for GPUs: from the probes' output to words.
#ifndef RINGD_DAEMON_GPU_GPU_FINDINGS_H_
#define RINGD_DAEMON_GPU_GPU_FINDINGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/rpc/admin.pb.h"
#include "proto/rpc/gpus.pb.h"

namespace ringd {

// How a probe has ended, and its output.
struct ProbeResult {
  std::string file;        // the library's, as it is set
  std::string output;      // lines of JSON
  absl::Status end;        // as ProbeProcess::end
  std::string last_error;  // as ProbeProcess::LastError
};

// The last whole line that makes sense. If the probe did not come to its end, library.problem says
// how it ended and at which step, and what was found before stays. The output is input: no line of
// it is believed more than its form allows.
v1::GpuFindings ReadFindings(const ProbeResult& result);

// Both probes' findings together; `cuda_end` tells apart what is not there and what has failed.
v1::GpusReply MergeFindings(const v1::GpuFindings& cuda, const absl::Status& cuda_end,
                            const v1::GpuFindings& nccl);

// In a line, for `ringctl status`: "2 (NVIDIA H100 80GB HBM3), CUDA 13.0, NCCL 2.32.3".
std::string SummaryOf(const v1::GpusReply& reply);

}  // namespace ringd

#endif  // RINGD_DAEMON_GPU_GPU_FINDINGS_H_
