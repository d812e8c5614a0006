#include "daemon/rpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_limiter.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/text.h"

namespace ringd {
namespace {

LogLevel LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return LogLevel::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return LogLevel::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  return LogLevel::kWarning;
}

// What of a line is logged; the rest may be a header that somebody has sent.
constexpr std::size_t kMostBytes = 512;

// Callers provoke lines, and say what is in them.
void LogLimited(LogLevel level, absl::string_view text) {
  static Mutex mutex;
  static LogLimiter limiter(20, std::chrono::seconds(10));
  std::optional<std::uint64_t> suppressed;
  {
    const MutexLock lock(mutex);
    suppressed = limiter.Pass(Clock::now());
  }
  if (!suppressed.has_value()) return;
  Log(level,
      absl::StrCat(
          "gRPC: ", CleanLine(CutToLength(text, kMostBytes)),
          *suppressed == 0 ? "" : absl::StrCat(" (", *suppressed, " further lines left out)")));
}

}  // namespace

void RouteGrpcLog() {
  // What it has to say is about messages that somebody sends, as often as he likes.
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char*, int, const std::string& text) {
        LogDebug(absl::StrCat("protobuf: ", text));
      });
  gpr_set_log_function(
      [](gpr_log_func_args* line) { LogLimited(LevelOf(line->severity), line->message); });
}

}  // namespace ringd
