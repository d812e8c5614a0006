#include "daemon/config/quantity.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

namespace ringd {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST_CASE("ParseBytes: reads binary and decimal units, and fractions that are whole") {
  CHECK(ParseBytes("0").value() == 0);
  CHECK(ParseBytes("17").value() == 17);
  CHECK(ParseBytes("17B").value() == 17);
  CHECK(ParseBytes("64MiB").value() == std::uint64_t{64} << 20);
  CHECK(ParseBytes(" 8 GiB ").value() == std::uint64_t{8} << 30);
  CHECK(ParseBytes("1.5KiB").value() == 1536);
  CHECK(ParseBytes("3kB").value() == 3000);
  CHECK(ParseBytes("2TiB").value() == std::uint64_t{2} << 40);
}

TEST_CASE("ParseBytes: refuses what is no size") {
  for (const char* text : {"", "MiB", "64mib", "64 M", "-1", "+1", "1.2.3KiB", "0.3B", "1e3",
                           "0x10", "99999999TiB", "1 2", "."}) {
    INFO(text);
    CHECK(ParseBytes(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("ParseDuration: reads every unit, and 0 without one") {
  CHECK(ParseDuration("0").value() == nanoseconds(0));
  CHECK(ParseDuration("5s").value() == seconds(5));
  CHECK(ParseDuration("0.1s").value() == milliseconds(100));
  CHECK(ParseDuration("250 ms").value() == milliseconds(250));
  CHECK(ParseDuration("50us").value() == microseconds(50));
  CHECK(ParseDuration("7ns").value() == nanoseconds(7));
  CHECK(ParseDuration("2min").value() == minutes(2));
  CHECK(ParseDuration("24h").value() == hours(24));
  // Beyond what a double has digits for behind the point.
  CHECK(ParseDuration("1.1h").value() == std::chrono::minutes(66));
  CHECK(ParseDuration("0.27min").value() == std::chrono::milliseconds(16'200));
  CHECK(ParseBytes("1.37TB").value() == 1'370'000'000'000);
  CHECK(ParseDuration("30").value() == seconds(30));
  CHECK(ParseDuration("0").value() == nanoseconds(0));
}

TEST_CASE("ParseDuration: refuses what is no duration") {
  for (const char* text : {"", ".", "5m", "5x", "s", "-5s", "5 s s", "0.5ns", "99999999999h"}) {
    INFO(text);
    CHECK(ParseDuration(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("FormatBytes and FormatDuration: what they write reads back as the same value") {
  CHECK(FormatBytes(std::uint64_t{64} << 20) == "64MiB");
  CHECK(FormatBytes(3000) == "3kB");
  CHECK(FormatDuration(milliseconds(1500)) == "1500ms");
  CHECK(FormatDuration(seconds(120)) == "2min");
  for (const std::uint64_t value :
       {0ull, 1ull, 1023ull, 1024ull, 1000000ull, 1ull << 33, 12345678ull}) {
    CHECK(ParseBytes(FormatBytes(value)).value() == value);
    const nanoseconds duration(static_cast<std::int64_t>(value));
    CHECK(ParseDuration(FormatDuration(duration)).value() == duration);
  }
}

}  // namespace
}  // namespace ringd
