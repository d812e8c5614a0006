#include "daemon/logging/log_setup.h"

#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/logging/log.h"
#include "daemon/logging/log_line.h"

namespace ringd {
namespace {

using LineFormat = std::string (*)(std::chrono::system_clock::time_point, absl::string_view,
                                   absl::string_view);

// Our two forms as spdlog wants them.
class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(LineFormat format) noexcept : format_(format) {}

  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& dest) override {
    const spdlog::string_view_t level = spdlog::level::to_string_view(msg.level);
    const std::string line = format_(msg.time, absl::string_view(level.data(), level.size()),
                                     absl::string_view(msg.payload.data(), msg.payload.size()));
    dest.append(line.data(), line.data() + line.size());
    dest.push_back('\n');
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(format_);
  }

 private:
  LineFormat format_;
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
std::shared_ptr<spdlog::logger> MakeLogger(spdlog::sink_ptr sink, LineFormat format) {
  auto logger = std::make_shared<spdlog::logger>("ringd", std::move(sink));
  logger->set_formatter(std::make_unique<LineFormatter>(format));
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

bool LogEnabled(LogLevel level) { return Logger().should_log(ToSpdlog(level)); }

absl::Status StartLogging(const Config& config) {
  spdlog::sink_ptr sink;
  // spdlog reports by exception; none leaves this function.
  try {
    if (config.log_file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(config.log_file);
    }
  } catch (const spdlog::spdlog_ex& error) {
    return absl::UnavailableError(
        absl::StrCat("log_file = \"", config.log_file, "\": ", error.what()));
  }
  const LineFormat format = config.log_format == "json" ? &FormatJsonLine : &FormatTextLine;
  std::shared_ptr<spdlog::logger> logger = MakeLogger(std::move(sink), format);
  logger->set_level(spdlog::level::from_str(config.log_level));
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace ringd
