#include "daemon/jobs/communicator/rate_window.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("RateWindow: nothing is known before the first sample") {
  const RateWindow window;
  CHECK(window.PerSecond(1000, Clock::now()) == 0);
}

TEST_CASE("RateWindow: growth since the oldest sample") {
  const Clock::time_point begin = Clock::now();
  RateWindow window;
  window.Sample(100, begin);
  CHECK(window.PerSecond(100, begin) == 0);
  CHECK(window.PerSecond(600, begin + milliseconds(500)) == Approx(1000));
  // Samples that come too soon after another are not kept.
  for (int ms = 0; ms < 1000; ms += 10) window.Sample(5000, begin + milliseconds(ms));
  CHECK(window.PerSecond(4100, begin + seconds(2)) == Approx(2000));
}

TEST_CASE("RateWindow: what is older than the window does not count") {
  const Clock::time_point begin = Clock::now();
  RateWindow window;
  std::uint64_t value = 0;
  for (int s = 0; s < 30; ++s) {
    value += 1'000'000;  // a burst long ago
    window.Sample(value, begin + seconds(s));
  }
  for (int s = 30; s < 60; ++s) {
    value += 50;
    window.Sample(value, begin + seconds(s));
  }
  CHECK(window.PerSecond(value, begin + seconds(59)) == Approx(50));
}

}  // namespace
}  // namespace ringd
