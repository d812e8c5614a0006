#include "daemon/engine/standstill.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("Standstill: for a moment after it nobody is judged") {
  const Clock::time_point start{seconds(1000)};
  Standstill standstill;
  standstill.OnTurn(start, start + milliseconds(499));
  CHECK(standstill.Judges(start + milliseconds(499)));
  const Clock::time_point resumed = start + seconds(20);
  standstill.OnTurn(start, resumed);
  CHECK_FALSE(standstill.Judges(resumed));
  standstill.OnTurn(resumed, resumed + milliseconds(10));
  CHECK_FALSE(standstill.Judges(resumed + milliseconds(999)));
  CHECK(standstill.Judges(resumed + seconds(1)));
}

TEST_CASE("Standstill: an engine whose turns are all late judges in every third of them") {
  Clock::time_point now{seconds(1000)};
  Standstill standstill;
  int judged = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const Clock::time_point due = now;
    now += milliseconds(600);
    standstill.OnTurn(due, now);
    if (standstill.Judges(now)) ++judged;
  }
  CHECK(judged == 100);
}

TEST_CASE("Standstill: a turn that is early or in time is none") {
  const Clock::time_point start{seconds(1000)};
  Standstill standstill;
  standstill.OnTurn(start + seconds(1), start);
  CHECK(standstill.Judges(start));
}

}  // namespace
}  // namespace ringd
