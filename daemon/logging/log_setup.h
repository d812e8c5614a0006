// Starts the log as configured.
#ifndef RINGD_DAEMON_LOGGING_LOG_SETUP_H_
#define RINGD_DAEMON_LOGGING_LOG_SETUP_H_

#include <string>

#include "absl/status/status.h"
#include "daemon/config/config.h"

namespace ringd {

// Sets spdlog's default logger by log_level, log_format and log_file; lines that go to the journal
// begin with their priority. Before it, lines go to standard error as text. Call once, before other
// threads log.
//   kUnavailable: log_file can't be opened; the message names it.
absl::Status StartLogging(const Config& config);

// The log of an engine: records on standard error, for the supervisor (engine_log.h), that never
// hold this process up. Lines of a lower level are not even made; SetLogLevel changes it. From now
// on a supervisor that has gone is an error of writing, no SIGPIPE. Call once, before other threads
// log.
void StartEngineLogging(const std::string& log_level);

// Goes on in a new file of the same name (logrotate), if there is a log_file. Any thread.
//   kUnavailable: it can't be opened; then the old one goes on.
absl::Status ReopenLog();

// From now on; one of log_level's choices. Any thread.
void SetLogLevel(const std::string& log_level);

// True if standard error goes to systemd's journal, which then takes "<3>" and the like at a line's
// begin as its priority (sd-daemon(3)).
bool StandardErrorIsJournal();

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_LOG_SETUP_H_
