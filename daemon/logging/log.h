// One line of ringd's log, with the fields that say whose line it is.
#ifndef RINGD_DAEMON_LOGGING_LOG_H_
#define RINGD_DAEMON_LOGGING_LOG_H_

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ringd {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarning, kError };

// Every line about a job names the job, its communicator and its generation, and every line about
// one of its ranks the rank. Text lines end in "job=a rank=3 communicator=1 generation=0"; in JSON
// the fields are members of the object. What belongs to a job makes them (Job::Fields and the
// like).
struct LogFields {
  absl::string_view job = {};  // empty: not about a job
  std::optional<std::int32_t> rank = {};
  std::optional<std::uint32_t> communicator = {};
  // The coordinator gives it: the other nodes don't know it before all ranks have joined.
  std::optional<std::uint32_t> generation = {};
  // The pid of the engine whose line this is: the supervisor marks them. Always the last field.
  std::optional<std::int32_t> engine = {};
};

// Writes one line. Whatever `message` and the job's name hold, it stays one line and can't pretend
// to be another: control characters are escaped. Any thread; blocks as long as the log's file does.
void Log(LogLevel level, absl::string_view message, const LogFields& fields = {});

// The same for a line that was made at `time`, elsewhere.
void LogMadeAt(std::chrono::system_clock::time_point time, LogLevel level,
               absl::string_view message, const LogFields& fields);

// False if lines of this level go nowhere: spares making the message.
bool LogEnabled(LogLevel level);

inline void LogDebug(absl::string_view message, const LogFields& fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(absl::string_view message, const LogFields& fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(absl::string_view message, const LogFields& fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(absl::string_view message, const LogFields& fields = {}) {
  Log(LogLevel::kError, message, fields);
}

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_LOG_H_
