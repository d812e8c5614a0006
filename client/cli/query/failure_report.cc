#include "client/cli/query/failure_report.h"

#include <cstdio>

#include "client/cli/query/admin_client.h"
#include "client/cli/query/exit_code.h"
#include "proto/base/text.h"

namespace ringd::cli {

bool IsUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

int ReportFailure(const std::string& socket, const absl::Status& status, bool unreachable) {
  const absl::Status clean(status.code(), CleanLine(status.message()));
  const std::string text =
      unreachable ? ExplainUnreachable(socket, clean) : std::string(clean.message());
  std::fprintf(stderr, "ringctl: %s\n", text.c_str());
  return unreachable ? kUnreachable : kFailed;
}

}  // namespace ringd::cli
