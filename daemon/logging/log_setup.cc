#include "daemon/logging/log_setup.h"

#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/logging/engine_log_sink.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_file.h"
#include "daemon/logging/log_line.h"

namespace ringd {
namespace {

using LineFormat = std::string (*)(std::chrono::system_clock::time_point, absl::string_view,
                                   absl::string_view);

// syslog's numbers, as the journal reads them at the begin of a line.
absl::string_view JournalPriority(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return "<2>";
    case spdlog::level::err:
      return "<3>";
    case spdlog::level::warn:
      return "<4>";
    case spdlog::level::debug:
    case spdlog::level::trace:
      return "<7>";
    default:
      return "<6>";
  }
}

// Our two forms as spdlog wants them.
class LineFormatter final : public spdlog::formatter {
 public:
  LineFormatter(LineFormat format, bool with_priority) noexcept
      : format_(format), with_priority_(with_priority) {}

  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& dest) override {
    const spdlog::string_view_t level = spdlog::level::to_string_view(msg.level);
    if (with_priority_) {
      const absl::string_view priority = JournalPriority(msg.level);
      dest.append(priority.data(), priority.data() + priority.size());
    }
    const std::string line = format_(msg.time, absl::string_view(level.data(), level.size()),
                                     absl::string_view(msg.payload.data(), msg.payload.size()));
    dest.append(line.data(), line.data() + line.size());
    dest.push_back('\n');
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(format_, with_priority_);
  }

 private:
  const LineFormat format_;
  const bool with_priority_;
};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Before StartLogging, and in tests without it, lines go to standard error as text.
std::shared_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink, LineFormat format,
                                           bool with_priority = false) {
  auto logger = std::make_shared<spdlog::logger>("ringd", std::move(sink));
  logger->set_formatter(std::make_unique<LineFormatter>(format, with_priority));
  logger->flush_on(spdlog::level::info);
  return logger;
}

spdlog::logger& Logger() {
  // spdlog's own default writes coloured lines to standard output, which is not the log's place.
  static const bool replaced = [] {
    if (spdlog::default_logger_raw()->name().empty()) {
      spdlog::set_default_logger(
          MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), &FormatTextLine));
    }
    return true;
  }();
  static_cast<void>(replaced);
  return *spdlog::default_logger_raw();
}

}  // namespace

void Log(LogLevel level, absl::string_view message, const LogFields& fields) {
  spdlog::logger& logger = Logger();
  const spdlog::level::level_enum severity = ToSpdlog(level);
  if (!logger.should_log(severity)) return;
  const std::string payload = PackLogPayload(message, fields);
  logger.log(spdlog::source_loc{}, severity, spdlog::string_view_t(payload.data(), payload.size()));
}

void LogMadeAt(std::chrono::system_clock::time_point time, LogLevel level,
               absl::string_view message, const LogFields& fields) {
  const std::string payload = PackLogPayload(message, fields);
  // Asks for the level itself.
  Logger().log(time, spdlog::source_loc{}, ToSpdlog(level),
               spdlog::string_view_t(payload.data(), payload.size()));
}

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

absl::Status StartLogging(const Config& config) {
  const LineFormat format = config.log_format == "json" ? &FormatJsonLine : &FormatTextLine;
  std::shared_ptr<spdlog::logger> logger;
  if (config.log_file.empty()) {
    logger = MakeLogger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), format,
                        StandardErrorIsJournal());
  } else {
    absl::StatusOr<std::shared_ptr<LogFile>> file = LogFile::Open(config.log_file);
    if (!file.ok()) {
      return absl::UnavailableError(absl::StrCat("log_file: ", file.status().message()));
    }
    logger = MakeLogger(*std::move(file), format);
  }
  logger->set_level(spdlog::level::from_str(config.log_level));
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void StartEngineLogging(const std::string& log_level) {
  ::signal(SIGPIPE, SIG_IGN);
  auto logger = std::make_shared<spdlog::logger>("ringd-engine",
                                                 std::make_shared<EngineLogSink>(STDERR_FILENO));
  logger->set_level(spdlog::level::from_str(log_level));
  spdlog::set_default_logger(std::move(logger));
}

absl::Status ReopenLog() {
  for (const spdlog::sink_ptr& sink : Logger().sinks()) {
    if (auto* const file = dynamic_cast<LogFile*>(sink.get()); file != nullptr) {
      return file->Reopen();
    }
  }
  return absl::OkStatus();
}

void SetLogLevel(const std::string& log_level) {
  Logger().set_level(spdlog::level::from_str(log_level));
}

bool StandardErrorIsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &info) == 0 &&
         absl::StrCat(info.st_dev, ":", info.st_ino) == stream;
}

}  // namespace ringd
