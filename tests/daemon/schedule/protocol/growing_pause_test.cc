#include "daemon/schedule/protocol/growing_pause.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

namespace ringd {
namespace {

using std::chrono::seconds;

// How long the pause that has just begun takes, in seconds.
int LengthOf(const GrowingPause& pause, TimePoint begin) {
  int length = 0;
  while (!pause.IsOver(begin + seconds(length))) ++length;
  return length;
}

TEST_CASE("GrowingPause: over at first, then twice as long each time, up to the longest") {
  GrowingPause pause(seconds(2), seconds(7));
  TimePoint now{seconds(100)};
  CHECK(pause.IsOver(now));
  std::vector<int> lengths;
  for (int i = 0; i < 4; ++i) {
    pause.Begin(now);
    lengths.push_back(LengthOf(pause, now));
    now += seconds(lengths.back());
  }
  CHECK(lengths == std::vector<int>{2, 4, 7, 7});
}

TEST_CASE("GrowingPause: starting over shortens a long pause, and makes the next one the first") {
  GrowingPause pause(seconds(1), seconds(60));
  const TimePoint now{seconds(100)};
  pause.Begin(now);
  pause.Begin(now);
  pause.Begin(now);
  REQUIRE(LengthOf(pause, now) == 4);

  SECTION("one that goes on for longer than the first") {
    pause.StartOver(now + seconds(1));
    CHECK(LengthOf(pause, now) == 2);
    pause.Begin(now);
    CHECK(LengthOf(pause, now) == 1);
  }
  SECTION("one that ends before") {
    pause.StartOver(now + seconds(3));
    CHECK(LengthOf(pause, now) == 4);
    pause.Begin(now);
    CHECK(LengthOf(pause, now) == 1);
  }
}

}  // namespace
}  // namespace ringd
