#include "daemon/jobs/tracing/clock_offset.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace ringd {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST_CASE("ClockOffset: without a ping nothing is known") {
  const ClockOffset clock;
  CHECK_FALSE(clock.Best(kSecond).has_value());
  CHECK(clock.WantsMore(kSecond));
}

TEST_CASE("ClockOffset: of several pings the one with the shortest round trip counts") {
  ClockOffset clock;
  // The other clock is 5,000 ahead; the way there takes longer than the way back.
  clock.Add(1000, 1000 + 900 + 5000, 2000);
  clock.Add(3000, 3000 + 60 + 5000, 3100);
  clock.Add(4000, 4000 + 10 + 5000, 4800);
  const auto best = clock.Best(5000);
  REQUIRE(best.has_value());
  CHECK(best->uncertainty_ns == 50);
  CHECK(best->offset_ns == 5010);
  // The truth is within the uncertainty.
  CHECK(best->offset_ns - 5000 <= 50);
}

TEST_CASE("ClockOffset: a clock that is behind has a negative offset, however far") {
  ClockOffset clock;
  clock.Add(kSecond * 1'000'000, 7, kSecond * 1'000'000 + 2);
  CHECK(clock.Best(kSecond * 1'000'000 + 2)->offset_ns ==
        7 - static_cast<std::int64_t>(kSecond * 1'000'000 + 1));
}

TEST_CASE("ClockOffset: an old ping counts less than a new one that took somewhat longer") {
  ClockOffset clock;
  clock.Add(0, 100, 20);
  clock.Add(60 * kSecond, 60 * kSecond + 200, 60 * kSecond + 2000);
  const auto best = clock.Best(60 * kSecond + 2000);
  CHECK(best->uncertainty_ns == 1000);
}

TEST_CASE("ClockOffset: what came back before it left counts for nothing") {
  ClockOffset clock;
  clock.Add(1000, 5, 999);
  clock.Add(UINT64_MAX, 5, 10);
  CHECK_FALSE(clock.Best(2000).has_value());
}

TEST_CASE("ClockOffset: enough pings of late are enough, and after some seconds more are wanted") {
  ClockOffset clock;
  for (std::size_t i = 0; i < ClockOffset::kPings; ++i) {
    CHECK(clock.WantsMore(kSecond));
    clock.Add(kSecond, kSecond, kSecond + 10);
  }
  CHECK_FALSE(clock.WantsMore(kSecond + 10));
  CHECK(clock.WantsMore(60 * kSecond));
}

}  // namespace
}  // namespace ringd
