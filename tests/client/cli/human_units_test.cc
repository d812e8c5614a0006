#include "client/cli/views/human_units.h"

#include <catch2/catch.hpp>
#include <limits>

namespace ringd::cli {

TEST_CASE("HumanBytes: three digits and a binary unit") {
  CHECK(HumanBytes(0) == "0 B");
  CHECK(HumanBytes(1023) == "1023 B");
  CHECK(HumanBytes(1024) == "1 KiB");
  CHECK(HumanBytes(1536) == "1.5 KiB");
  CHECK(HumanBytes(10.0 * 1024) == "10 KiB");
  CHECK(HumanBytes(1024.0 * 1024 - 1) == "1 MiB");
  CHECK(HumanBytes(118.4 * 1024 * 1024) == "118 MiB");
  CHECK(HumanBytes(static_cast<double>(std::numeric_limits<std::uint64_t>::max())) == "16384 PiB");
  CHECK(HumanRate(2048) == "2 KiB/s");
}

TEST_CASE("HumanDuration: two units at most") {
  CHECK(HumanDuration(0) == "0 s");
  CHECK(HumanDuration(-3) == "0 s");
  CHECK(HumanDuration(0.00005) == "50 us");
  CHECK(HumanDuration(0.012) == "12 ms");
  CHECK(HumanDuration(3.44) == "3.4 s");
  CHECK(HumanDuration(59.6) == "1 min");
  CHECK(HumanDuration(307) == "5 min 7 s");
  CHECK(HumanDuration(7380) == "2 h 3 min");
  CHECK(HumanDuration(349200) == "4 d 1 h");
}

TEST_CASE("HumanCount: groups of three digits") {
  CHECK(HumanCount(0) == "0");
  CHECK(HumanCount(999) == "999");
  CHECK(HumanCount(1000) == "1,000");
  CHECK(HumanCount(1234567) == "1,234,567");
  CHECK(HumanCount(std::numeric_limits<std::uint64_t>::max()) == "18,446,744,073,709,551,615");
}

TEST_CASE("HumanShare and HumanNumber: decimals only where they tell something") {
  CHECK(HumanShare(0) == "0 %");
  CHECK(HumanShare(0.042) == "4.2 %");
  CHECK(HumanShare(0.371) == "37 %");
  CHECK(HumanShare(1) == "100 %");
  CHECK(HumanNumber(0) == "0");
  CHECK(HumanNumber(0.424) == "0.42");
  CHECK(HumanNumber(2.5) == "2.5");
  CHECK(HumanNumber(17.4) == "17");
}

}  // namespace ringd::cli
