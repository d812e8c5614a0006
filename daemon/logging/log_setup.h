// Starts the log as configured.
#ifndef RINGD_DAEMON_LOGGING_LOG_SETUP_H_
#define RINGD_DAEMON_LOGGING_LOG_SETUP_H_

#include "absl/status/status.h"
#include "daemon/config/config.h"

namespace ringd {

// Sets spdlog's default logger by log_level, log_format and log_file. Before it, lines go to standard
// error as text. Call once, before other threads log.
//   kUnavailable: log_file can't be opened; the message names it.
absl::Status StartLogging(const Config& config);

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_LOG_SETUP_H_
