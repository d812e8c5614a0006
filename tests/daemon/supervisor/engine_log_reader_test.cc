#include "daemon/supervisor/engine_log_reader.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "daemon/logging/engine_log.h"
#include "daemon/logging/log_line.h"
#include "proto/base/text.h"
#include "tests/daemon/supervisor/captured_log.h"

namespace ringd {
namespace {

using Catch::Contains;
using std::chrono::seconds;

constexpr pid_t kEngine = 4711;
const Clock::time_point kNow = Clock::now();

std::string Record(LogLevel level, absl::string_view message, const LogFields& fields = {}) {
  return EncodeEngineRecord(std::chrono::system_clock::now(), level,
                            PackLogPayload(message, fields));
}

TEST_CASE("EngineLogReader: records keep level and fields and gain the engine's mark") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  reader.Take(Record(LogLevel::kWarning, "a stall", {.job = "train", .rank = 1}) +
                  Record(LogLevel::kInfo, "begun") + Record(LogLevel::kDebug, "too fine"),
              kNow);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["level"] == "warning");
  CHECK(lines[0]["message"] == "a stall");
  CHECK(lines[0]["job"] == "train");
  CHECK(lines[0]["rank"] == 1);
  CHECK(lines[0]["engine"] == kEngine);
  CHECK(lines[1]["level"] == "info");
  CHECK(lines[1]["engine"] == kEngine);
  CHECK_FALSE(lines[1].contains("job"));
}

TEST_CASE("EngineLogReader: lines of an engine that has a job are of that job, whatever they say") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  LogLimiter of_user(EngineLogReader::kLines, EngineLogReader::kPeriod);
  reader.BelongsTo("own", &of_user);
  reader.Take(Record(LogLevel::kError, "it failed", {.job = "another's"}) +
                  Record(LogLevel::kError, "of no job"),
              kNow);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["job"] == "own");
  CHECK_FALSE(lines[1].contains("job"));
}

TEST_CASE("EngineLogReader: other lines are errors with the mark; empty ones are none") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  reader.Take("\nringd-engine: x.cc:3: Assertion `a' failed.\n\n\x1dI\n", kNow);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["level"] == "error");
  CHECK(lines[0]["message"] == "ringd-engine: x.cc:3: Assertion `a' failed.");
  CHECK(lines[0]["engine"] == kEngine);
  CHECK(lines[1]["message"] == "\\x1dI");
}

TEST_CASE("EngineLogReader: last words are UTF-8, whatever was written, and wherever it is cut") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  reader.Take("\xff boom\n", kNow);
  CHECK(reader.last_line() == "\\xff boom");
  std::string umlauts = "x";
  while (umlauts.size() < 2000) umlauts += "\u00fc";
  reader.Take(umlauts + "\n", kNow);
  CHECK(IsUtf8(reader.last_line()));
  CHECK(reader.last_line().size() > 100);
}

TEST_CASE("EngineLogReader: lines come whole, whatever pieces they come in") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  for (const char c : Record(LogLevel::kInfo, "one") + "two\nthree") {
    reader.Take(absl::string_view(&c, 1), kNow);
  }
  CHECK(log.Lines().size() == 2);
  CHECK(reader.last_line() == "two");
  reader.End(kNow);
  reader.End(kNow);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["message"] == "one");
  CHECK(lines[1]["message"] == "two");
  CHECK(lines[2]["message"] == "three");
  CHECK(reader.last_line() == "three");
}

TEST_CASE("EngineLogReader: a line without end is cut, and the next one is whole") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  const std::string piece(100'000, 'x');
  for (int i = 0; i < 10; ++i) reader.Take(piece, kNow);
  CHECK(log.Lines().empty());
  reader.Take("\nnext\n", kNow);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["message"].get<std::string>() == std::string(kMaxEngineLogLine, 'x'));
  CHECK(lines[1]["message"] == "next");
}

TEST_CASE("EngineLogReader: more lines than the limit are counted, and told when it goes on") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  for (std::uint32_t i = 0; i < EngineLogReader::kLines + 5; ++i) reader.Take("line\n", kNow);
  CHECK(log.Lines().size() == EngineLogReader::kLines);
  reader.Take("later\n", kNow + EngineLogReader::kPeriod);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == EngineLogReader::kLines + 2);
  CHECK(lines[lines.size() - 2]["level"] == "warning");
  CHECK_THAT(lines[lines.size() - 2]["message"].get<std::string>(),
             Catch::StartsWith("5 lines of this engine are left out"));
  CHECK(lines.back()["message"] == "later");
}

TEST_CASE("EngineLogReader: what was left out last is told at the end, and is the last line") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  for (std::uint32_t i = 0; i < EngineLogReader::kLines; ++i) reader.Take("line\n", kNow);
  reader.Take("Assertion failed\n", kNow);
  CHECK(reader.last_line() == "Assertion failed");
  reader.End(kNow);
  reader.End(kNow);
  const auto lines = log.Lines();
  REQUIRE(lines.size() == EngineLogReader::kLines + 1);
  CHECK_THAT(lines.back()["message"].get<std::string>(),
             Catch::StartsWith("1 lines of this engine are left out"));
}

TEST_CASE("EngineLogReader: an engine's time is believed if it can be true") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  const auto now = std::chrono::system_clock::now();
  for (const auto time : {now - seconds(5), now - seconds(3600), now + seconds(3600)}) {
    reader.Take(EncodeEngineRecord(time, LogLevel::kInfo, "m"), kNow);
  }
  const auto text_of = [](std::chrono::system_clock::time_point time) {
    return FormatTextLine(time, "", "").substr(0, 27);
  };
  const auto lines = log.Lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["time"] == text_of(now - seconds(5)));
  for (const int i : {1, 2}) {
    CHECK(lines[i]["time"] >= text_of(now));
    CHECK(lines[i]["time"] <= text_of(std::chrono::system_clock::now()));
  }
}

TEST_CASE("EngineLogReader: an assertion stays the last line in spite of the backtrace behind it") {
  const CapturedLog log;
  EngineLogReader reader(kEngine);
  const std::string assertion = "[1700000000.1] [node:4711:0] mm_ep.c:117 Assertion `a' failed";
  reader.Take(Record(LogLevel::kError, "it is late"), kNow);
  reader.Take(Record(LogLevel::kInfo, "begun"), kNow);
  CHECK(reader.last_line() == "it is late");
  reader.Take(assertion +
                  "\n==== backtrace (tid:   4711) ====\n 0  /lib/libucs.so(h+0x1) [0x7f]\n"
                  "    #1 0x55 in main x.cc:3\n/lib/libc.so.6(+0x3bf90)[0x7f1f]\n=======\n",
              kNow);
  CHECK(reader.last_line() == assertion);
  reader.Take(std::string("a\tb\x1b[2J") + std::string(1000, 'x') + "\n", kNow);
  CHECK_THAT(reader.last_line(), Catch::StartsWith("a\\x09b\\x1b[2Jxxx"));
  CHECK(reader.last_line().size() == EngineLogReader::kMostShown);
}

}  // namespace
}  // namespace ringd
