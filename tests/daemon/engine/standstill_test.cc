#include "daemon/engine/standstill.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("Standstill: for a moment after it deadlines are judged by the time before it") {
  const Clock::time_point start{seconds(1000)};
  Standstill standstill;
  standstill.OnTurn(start, start + milliseconds(499));
  CHECK(standstill.Judged(start + milliseconds(499)) == start + milliseconds(499));
  const Clock::time_point resumed = start + seconds(20);
  standstill.OnTurn(start, resumed);
  CHECK(standstill.Judged(resumed) == start);
  CHECK(standstill.Judged(resumed + milliseconds(999)) == start + milliseconds(999));
  CHECK(standstill.Judged(resumed + seconds(1)) == resumed + seconds(1));
}

TEST_CASE("Standstill: one that follows at once counts as well") {
  const Clock::time_point start{seconds(1000)};
  Standstill standstill;
  standstill.OnTurn(start, start + seconds(10));
  standstill.OnTurn(start + milliseconds(10'500), start + milliseconds(13'500));
  CHECK(standstill.Judged(start + milliseconds(13'500)) == start + milliseconds(500));
}

TEST_CASE("Standstill: a turn that is early or in time is none") {
  const Clock::time_point start{seconds(1000)};
  Standstill standstill;
  standstill.OnTurn(start + seconds(1), start);
  CHECK(standstill.Judged(start) == start);
}

}  // namespace
}  // namespace ringd
