#include "daemon/logging/engine_log_sink.h"

#include <spdlog/logger.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "daemon/logging/engine_log.h"
#include "daemon/logging/log_setup.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// Standard error is a socket as an engine has it, until this goes; then the log is as before.
class EnginesError {
 public:
  EnginesError() : logger_(spdlog::default_logger()), standard_error_(::dup(STDERR_FILENO)) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    reader_.Reset(ends[0]);
    REQUIRE(::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    ::close(ends[1]);
  }
  ~EnginesError() {
    ::dup2(standard_error_.get(), STDERR_FILENO);
    spdlog::set_default_logger(logger_);
    std::signal(SIGPIPE, SIG_DFL);
  }

  // What is in the socket, by lines.
  std::vector<std::string> Read() {
    std::string text;
    char piece[4096];
    for (ssize_t length; (length = ::read(reader_.get(), piece, sizeof piece)) > 0;) {
      text.append(piece, static_cast<std::size_t>(length));
    }
    std::vector<std::string> lines;
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      lines.push_back(text.substr(begin, end - begin));
    }
    return lines;
  }
  void CloseReader() { reader_.Reset(); }

 private:
  const std::shared_ptr<spdlog::logger> logger_;
  const UniqueFd standard_error_;
  UniqueFd reader_;
};

TEST_CASE("StartEngineLogging: lines of the level and above are records, at once") {
  EnginesError error;
  StartEngineLogging("warning");
  LogInfo("left out");
  LogWarning("a stall", {.job = "train", .rank = 1});
  SetLogLevel("debug");
  LogDebug("a detail");
  const bool shows_trace = LogEnabled(LogLevel::kTrace);
  const auto lines = error.Read();
  CHECK_FALSE(shows_trace);
  REQUIRE(lines.size() == 2);
  const auto stall = ParseEngineRecord(lines[0]);
  REQUIRE(stall.has_value());
  CHECK(stall->level == LogLevel::kWarning);
  CHECK(stall->message == "a stall");
  CHECK(stall->fields.job == "train");
  CHECK(stall->fields.rank == 1);
  CHECK(std::chrono::system_clock::now() - stall->time < std::chrono::minutes(1));
  const auto detail = ParseEngineRecord(lines[1]);
  REQUIRE(detail.has_value());
  CHECK(detail->level == LogLevel::kDebug);
}

TEST_CASE("EngineLogSink: what finds no room is dropped, counted, and told when there is room") {
  EnginesError error;
  StartEngineLogging("info");
  const std::string kilobyte(1000, 'x');
  // A socket takes some 200 KiB, or less.
  constexpr std::size_t kLines = 1000;
  for (std::size_t i = 0; i < kLines; ++i) LogInfo(kilobyte);
  const std::size_t kept = error.Read().size();
  LogError("goes on");
  LogError("and on");
  const auto lines = error.Read();
  CHECK(kept > 0);
  CHECK(kept < kLines);
  REQUIRE(lines.size() == 3);
  const auto note = ParseEngineRecord(lines[0]);
  REQUIRE(note.has_value());
  CHECK(note->level == LogLevel::kWarning);
  CHECK(note->message == std::to_string(kLines - kept) +
                             " lines were dropped here: ringd did not read them in time");
  CHECK(ParseEngineRecord(lines[1])->message == "goes on");
  CHECK(ParseEngineRecord(lines[2])->message == "and on");
}

TEST_CASE("StartEngineLogging: to log when the supervisor has gone is no end of the process") {
  EnginesError error;
  StartEngineLogging("info");
  error.CloseReader();
  LogError("to nobody");
  SUCCEED();
}

}  // namespace
}  // namespace ringd
