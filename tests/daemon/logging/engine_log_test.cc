#include "daemon/logging/engine_log.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "daemon/logging/log_line.h"

namespace ringd {
namespace {

const std::chrono::system_clock::time_point kTime{std::chrono::microseconds(1'795'262'400'000'123)};

constexpr char kStart = '\x1d';

std::string Encode(LogLevel level, absl::string_view message, const LogFields& fields) {
  return EncodeEngineRecord(kTime, level, PackLogPayload(message, fields));
}

// Without the LF that it must have.
std::string LineOf(std::string record) {
  REQUIRE(record.size() <= kMaxEngineLogLine);
  REQUIRE(record.back() == '\n');
  record.pop_back();
  REQUIRE(record.find('\n') == std::string::npos);
  return record;
}

TEST_CASE("EngineRecord: what was encoded is parsed: level, time, message and fields") {
  const auto level = GENERATE(LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo,
                              LogLevel::kWarning, LogLevel::kError);
  const std::string line = LineOf(Encode(
      level, "a trainer joined", {.job = "a b", .rank = 3, .communicator = 0, .generation = 9}));
  const auto record = ParseEngineRecord(line);
  REQUIRE(record.has_value());
  CHECK(record->level == level);
  CHECK(record->time == kTime);
  CHECK(record->message == "a trainer joined");
  CHECK(record->fields.job == "a b");
  CHECK(record->fields.rank == 3);
  CHECK(record->fields.communicator == 0U);
  CHECK(record->fields.generation == 9U);
  CHECK_FALSE(record->fields.engine.has_value());

  const std::string plain = LineOf(Encode(level, "", {}));
  const auto empty = ParseEngineRecord(plain);
  REQUIRE(empty.has_value());
  CHECK(empty->message.empty());
  CHECK(empty->fields.job.empty());
  CHECK_FALSE(empty->fields.rank.has_value());
}

TEST_CASE("EngineRecord: control characters of message and job stay text, on one line") {
  const std::string line =
      LineOf(Encode(LogLevel::kInfo, "a\nb\x1erank=9\x1d", {.job = "x\x1erank=7\n"}));
  const auto record = ParseEngineRecord(line);
  REQUIRE(record.has_value());
  CHECK(record->message == "a\\x0ab\\x1erank=9\\x1d");
  CHECK(record->fields.job == "x\\x1erank=7\\x0a");
  CHECK_FALSE(record->fields.rank.has_value());
}

TEST_CASE("EngineRecord: a message that is too long is cut, and keeps its fields") {
  const std::string line =
      LineOf(Encode(LogLevel::kInfo, std::string(100'000, 'm'), {.job = "j", .rank = 3}));
  CHECK(line.size() == kMaxEngineLogLine - 1);
  const auto record = ParseEngineRecord(line);
  REQUIRE(record.has_value());
  CHECK(record->message.substr(record->message.size() - 4) == "m...");
  CHECK(record->fields.job == "j");
  CHECK(record->fields.rank == 3);
  // Escaping makes four characters of one.
  CHECK(ParseEngineRecord(LineOf(Encode(LogLevel::kInfo, std::string(4000, '\n'), {}))));
}

TEST_CASE("EngineRecord: a job's name that is too long is left out, and not the rest") {
  const std::string line =
      LineOf(Encode(LogLevel::kInfo, "m", {.job = std::string(5000, 'j'), .rank = 3}));
  const auto record = ParseEngineRecord(line);
  REQUIRE(record.has_value());
  CHECK(record->message == "m");
  CHECK(record->fields.job.empty());
  CHECK(record->fields.rank == 3);
}

TEST_CASE("EngineRecord: what is no record in all of its parts is none") {
  // "<" and "|" stand for GS and RS.
  const auto parse = [](std::string line) {
    std::replace(line.begin(), line.end(), '<', '\x1d');
    std::replace(line.begin(), line.end(), '|', '\x1e');
    return ParseEngineRecord(line).has_value();
  };
  CHECK(parse("<I17|m"));
  CHECK(parse("<I17|m|rank=2147483647|communicator=4294967295"));
  const auto line = GENERATE(as<std::string>(), "", "<", "<I", "plain", "I17|m", "<X17|m", "<I|m",
                             "<I17", "<I-1|m", "<I+1|m", "<I 1|m", "<I1a|m", "<I9999999999999999|m",
                             "<I99999999999999999999|m", "<I17|m|", "<I17|m|rank",
                             "<I17|m|rank=", "<I17|m|rank=-1", "<I17|m|rank=2147483648",
                             "<I17|m|communicator=4294967296", "<I17|m|rank=1|rank=1",
                             "<I17|m|job=", "<I17|m|job=a|job=b", "<I17|m|engine=1");
  CAPTURE(line);
  CHECK_FALSE(parse(line));
}

TEST_CASE("EngineRecord: any bytes are parsed to something, and what comes of them is one line") {
  std::mt19937_64 random(4711);
  const auto pick = [&random](std::uint64_t below) { return random() % below; };
  const std::string whole = LineOf(Encode(
      LogLevel::kWarning, "message", {.job = "j", .rank = 1, .communicator = 2, .generation = 3}));
  std::uint64_t parsed = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string line = whole;
    for (std::uint64_t changes = pick(4); changes > 0; --changes) {
      const std::size_t at = pick(line.size());
      // Mostly bytes that mean something.
      const char byte = pick(2) == 0 ? static_cast<char>(pick(256)) : "\x1d\x1e\x00=0TE"[pick(7)];
      if (pick(3) == 0) {
        line.erase(at, 1 + pick(20));
      } else if (pick(2) == 0) {
        line.insert(at, 1, byte);
      } else {
        line[at] = byte;
      }
      if (line.empty()) line.assign(1, kStart);
    }
    const auto record = ParseEngineRecord(line);
    if (!record.has_value()) continue;
    ++parsed;
    LogFields fields = record->fields;
    fields.engine = 5;
    const std::string payload = PackLogPayload(record->message, fields);
    for (const auto& text : {FormatTextLine(record->time, "info", payload),
                             FormatJsonLine(record->time, "info", payload)}) {
      const bool has_controls =
          std::any_of(text.begin(), text.end(), [](char c) { return c >= 0 && c < 0x20; });
      if (has_controls) FAIL(EscapeControls(text));
    }
    const std::string text = FormatTextLine(record->time, "info", payload);
    if (text.substr(text.size() - 9) != " engine=5") FAIL(EscapeControls(text));
  }
  CHECK(parsed > 10'000);
}

}  // namespace
}  // namespace ringd
