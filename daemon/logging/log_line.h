// The text of log lines: how message and fields travel through spdlog, and the two forms they take.
#ifndef RINGD_DAEMON_LOGGING_LOG_LINE_H_
#define RINGD_DAEMON_LOGGING_LOG_LINE_H_

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "daemon/logging/log.h"

namespace ringd {

// spdlog passes one string from the caller to the formatter. A line with fields is that string with
// the fields behind the message, set off by control characters that the message can't contain.
std::string PackLogPayload(absl::string_view message, const LogFields& fields);

// What PackLogPayload made, taken apart; what it didn't make is all message. Refers to `payload`.
struct LogPayload {
  absl::string_view message;
  std::vector<std::pair<absl::string_view, absl::string_view>> fields;  // key, value
};
LogPayload UnpackLogPayload(absl::string_view payload);

// Control characters as \xNN, so that a line stays a line.
std::string EscapeControls(absl::string_view text);

// "2026-11-21T12:00:00.000123Z info    a trainer joined job=a rank=3", without a newline.
std::string FormatTextLine(std::chrono::system_clock::time_point time, absl::string_view level,
                           absl::string_view payload);

// {"time":"...","level":"info","message":"a trainer joined","job":"a","rank":3}, without a newline.
// Bytes that are no UTF-8 become U+FFFD.
std::string FormatJsonLine(std::chrono::system_clock::time_point time, absl::string_view level,
                           absl::string_view payload);

}  // namespace ringd

#endif  // RINGD_DAEMON_LOGGING_LOG_LINE_H_
