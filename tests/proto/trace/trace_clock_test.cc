#include "proto/trace/trace_clock.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

namespace ringd {
namespace {

constexpr std::uint64_t kMostWrongNanos = 10'000;

TEST_CASE("TraceClock: shows the node's clock, and never goes back") {
  TraceClock clock;
  std::uint64_t last = 0;
  bool is_right = true;
  bool goes_on = true;
  // Over spans in which it learns the rate, goes by it, and takes it anew after pauses.
  for (int pause = 0; pause < 40; ++pause) {
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t before = MonotonicNanos();
      const std::uint64_t now = i % 100 == 99 ? clock.ExactNow() : clock.Now();
      const std::uint64_t after = MonotonicNanos();
      is_right = is_right && now + kMostWrongNanos >= before && now <= after + kMostWrongNanos;
      goes_on = goes_on && now >= last && clock.last() == now;
      last = now;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(pause < 38 ? 1 : 1'100));
  }
  CHECK(is_right);
  CHECK(goes_on);
}

TEST_CASE("TraceClock: where ticks are steady it is right to a microsecond, as a rule") {
  if (!HasSteadyTicks()) {
    WARN("skipped: this processor's ticks are not steady");
    return;
  }
  TraceClock clock;
  int close = 0;
  constexpr int kReadings = 100'000;
  for (int i = 0; i < kReadings; ++i) {
    const std::uint64_t before = MonotonicNanos();
    const std::uint64_t now = clock.Now();
    const std::uint64_t after = MonotonicNanos();
    if (now + 1'000 >= before && now <= after + 1'000) ++close;
  }
  CHECK(close > kReadings * 9 / 10);
}

}  // namespace
}  // namespace ringd
