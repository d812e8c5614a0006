#include "client/cli/query/standard_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "client/cli/processes/output_sink.h"
#include "client/cli/query/exit_code.h"
#include "proto/base/errno_status.h"

namespace ringd::cli {

int Print(const std::string& text) {
  OutputSink output(STDOUT_FILENO, -1);
  output.Write(text);
  if (!output.broken()) return kDone;
  if (output.error() != EPIPE) {
    const absl::Status status = ErrnoStatus(output.error(), "standard output can't be written");
    std::fprintf(stderr, "ringctl: %s\n", std::string(status.message()).c_str());
  }
  return kFailed;
}

}  // namespace ringd::cli
