#include "daemon/logging/log_line.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

namespace ringd {
namespace {

const std::chrono::system_clock::time_point kTime{std::chrono::microseconds(1'795'262'400'000'123)};

TEST_CASE("FormatTextLine: time, level, message and the fields of the job") {
  const std::string payload = PackLogPayload(
      "a trainer joined", {.job = "train-1", .rank = 3, .communicator = 1, .generation = 0});
  CHECK(FormatTextLine(kTime, "info", payload) ==
        "2026-11-21T12:00:00.000123Z info    a trainer joined job=train-1 rank=3 communicator=1 "
        "generation=0");
}

TEST_CASE("FormatTextLine: a line without fields is the message alone") {
  CHECK(FormatTextLine(kTime, "error", PackLogPayload("no", {})) ==
        "2026-11-21T12:00:00.000123Z error   no");
  CHECK(FormatTextLine(kTime, "error", "from elsewhere") ==
        "2026-11-21T12:00:00.000123Z error   from elsewhere");
}

TEST_CASE("FormatTextLine: whatever a name holds, the line stays one line and gains no field") {
  const std::string payload = PackLogPayload("first\nsecond\x1erank=9", {.job = "a b=c\x1e"
                                                                                "rank=7\n"});
  CHECK(FormatTextLine(kTime, "info", payload) ==
        "2026-11-21T12:00:00.000123Z info    first\\x0asecond\\x1erank=9 "
        "job=\"a b=c\\x1erank=7\\x0a\"");
  CHECK(FormatTextLine(kTime, "info", PackLogPayload("m", {.job = "x\" rank=0 z=\""})) ==
        "2026-11-21T12:00:00.000123Z info    m job=\"x\\x22 rank=0 z=\\x22\"");
}

TEST_CASE("FormatTextLine: nothing in it is a terminal's command, in whatever encoding") {
  const std::string payload = PackLogPayload(
      "\x1b[2J \xc2\x9b"
      "2J \x9b"
      "2J \xc3\xa9 \xc3",
      {});
  CHECK(FormatTextLine(kTime, "info", payload) ==
        "2026-11-21T12:00:00.000123Z info    \\x1b[2J \\xc2\\x9b2J \\x9b2J \xc3\xa9 \\xc3");
}

TEST_CASE("FormatJsonLine: is one JSON object with typed fields, whatever the message holds") {
  const std::string payload = PackLogPayload("say \"hi\" \\ \xff \xc3\xa9",
                                             {.job = "7", .communicator = 4, .generation = 2});
  const std::string line = FormatJsonLine(kTime, "warning", payload);
  CHECK(line.find('\n') == std::string::npos);
  const nlohmann::json object = nlohmann::json::parse(line);
  CHECK(object["time"] == "2026-11-21T12:00:00.000123Z");
  CHECK(object["level"] == "warning");
  CHECK(object["message"] == "say \"hi\" \\ \\xff \xc3\xa9");
  CHECK(object["job"] == "7");
  CHECK(object["communicator"] == 4);
  CHECK(object["generation"] == 2);
  CHECK_FALSE(object.contains("rank"));
}

}  // namespace
}  // namespace ringd
