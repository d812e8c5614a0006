#include "daemon/rpc/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"

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

}  // namespace

void RouteGrpcLog() {
  // What it has to say is about messages that somebody sends, as often as he likes.
  google::protobuf::SetLogHandler(
      [](google::protobuf::LogLevel, const char*, int, const std::string& text) {
        LogDebug(absl::StrCat("protobuf: ", text));
      });
  gpr_set_log_function([](gpr_log_func_args* line) {
    Log(LevelOf(line->severity), absl::StrCat("gRPC: ", line->message));
  });
}

}  // namespace ringd
