#include "daemon/logging/engine_log_sink.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/logging/engine_log.h"

namespace ringd {
namespace {

LogLevel LevelOf(spdlog::level::level_enum level) noexcept {
  switch (level) {
    case spdlog::level::trace:
      return LogLevel::kTrace;
    case spdlog::level::debug:
      return LogLevel::kDebug;
    case spdlog::level::info:
      return LogLevel::kInfo;
    case spdlog::level::warn:
      return LogLevel::kWarning;
    default:
      return LogLevel::kError;
  }
}

}  // namespace

bool EngineLogSink::Write(const std::string& record) const noexcept {
  ssize_t written = 0;
  do {
    written = ::write(fd_, record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  return written > 0;
}

void EngineLogSink::sink_it_(const spdlog::details::log_msg& message) {
  if (dropped_ > 0) {
    const std::string note =
        absl::StrCat(dropped_, " lines were dropped here: ringd did not read them in time");
    if (Write(EncodeEngineRecord(message.time, LogLevel::kWarning, note))) dropped_ = 0;
  }
  const absl::string_view payload(message.payload.data(), message.payload.size());
  // In order: nothing passes before the note.
  if (dropped_ > 0 || !Write(EncodeEngineRecord(message.time, LevelOf(message.level), payload))) {
    ++dropped_;
  }
}

}  // namespace ringd
