// How a line of an engine's log travels to the supervisor: as a record, which is one line of the
// engine's standard error.
//
//   GS level time RS message { RS key "=" value } LF
//
// GS and RS are the control characters 0x1d and 0x1e; level is a letter of "TDIWE"; time is in
// microseconds since 1970; message and values hold no control characters. The keys are "job",
// "rank", "communicator" and "generation", each once at most. Lines that don't begin with GS are
// what vendors' libraries print.
#ifndef RINGD_DAEMON_LOGGING_ENGINE_LOG_H_
#define RINGD_DAEMON_LOGGING_ENGINE_LOG_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "daemon/logging/log.h"

namespace ringd {

// The longest line, LF included: so little a socket takes as a whole or not at all, and never
// another one's bytes in between.
inline constexpr std::size_t kMaxEngineLogLine = 4096;

// With its LF. `payload` is PackLogPayload's. A message that is too long is cut, and ends in "...";
// a field that is longer than a quarter of the line is left out.
std::string EncodeEngineRecord(std::chrono::system_clock::time_point time, LogLevel level,
                               absl::string_view payload);

// Refers to the line that it was made of.
struct EngineRecord {
  std::chrono::system_clock::time_point time;
  LogLevel level = LogLevel::kError;
  absl::string_view message;
  LogFields fields;  // without the engine
};

// `line`: of another process, without LF. Nothing: it is no record, in whatever way. Message and
// job's name may hold any bytes; Log makes them harmless.
std::optional<EngineRecord> ParseEngineRecord(absl::string_view line);

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_ENGINE_LOG_H_
