#include "backends/ucx/ucx_log.h"

#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"

namespace ringd {
namespace {

constexpr std::size_t kLongestLine = 1024;

// UCX's handler has no argument of ours.
struct Sinks {
  Mutex mutex;
  std::function<void(const std::string&)> log ABSL_GUARDED_BY(mutex);
  std::function<void(const std::string&)> log_error ABSL_GUARDED_BY(mutex);
};

Sinks& TheSinks() {
  static Sinks& sinks = *new Sinks;
  return sinks;
}

// On any of UCX's threads.
ucs_log_func_rc_t Take(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                       ucs_log_level_t level, const ucs_log_component_config_t* /*component*/,
                       const char* format, va_list arguments) {
  std::function<void(const std::string&)> sink;
  {
    Sinks& sinks = TheSinks();
    MutexLock lock(sinks.mutex);
    sink = level <= UCS_LOG_LEVEL_ERROR && sinks.log_error ? sinks.log_error : sinks.log;
  }
  if (!sink) return UCS_LOG_FUNC_RC_CONTINUE;
  char text[kLongestLine];
  std::vsnprintf(text, sizeof(text), format, arguments);
  sink(absl::StrCat("UCX: ", text));
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void RouteUcxLog(const TransportOptions& options) {
  if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
  Sinks& sinks = TheSinks();
  {
    MutexLock lock(sinks.mutex);
    sinks.log = options.log;
    sinks.log_error = options.log_error;
  }
  static const bool pushed = [] {
    ucs_log_push_handler(&Take);
    return true;
  }();
  static_cast<void>(pushed);
}

}  // namespace ringd
