// A timeline in the Trace Event Format, which chrome://tracing and Perfetto open.
#ifndef RINGD_CLIENT_CLI_TRACE_CHROME_TRACE_H_
#define RINGD_CLIENT_CLI_TRACE_CHROME_TRACE_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "client/cli/trace/trace_record.h"
#include "client/cli/trace/trace_timeline.h"

namespace ringd::cli {

// Hands the JSON over, piece by piece. Times are microseconds since baseTimeNanoseconds, which is
// since 1970, as PyTorch's profiler writes it. Each rank and each ringd is a process. Slices of one
// kind that overlap without one being within the other lie on several tracks.
void WriteChromeTrace(const TraceRecord& record, const Timeline& timeline,
                      const std::function<void(absl::string_view)>& write);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_TRACE_CHROME_TRACE_H_
