#include "client/core/attach/ringd_watch.h"

#include <catch2/catch.hpp>
#include <vector>

namespace ringd::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Looks once a second, as the lifeline's thread does.
struct Watched {
  RingdWatch::Verdict Look(bool beats, milliseconds passed = milliseconds(1000)) {
    now += passed;
    if (beats) ++sight.heartbeat;
    return watch.Look(sight, now);
  }
  // How many of so many looks at a silent ringd give a warning.
  int WarningsIn(int looks) {
    int warnings = 0;
    for (int i = 0; i < looks; ++i) warnings += Look(false).warn ? 1 : 0;
    return warnings;
  }

  RingdWatch watch;
  RingdWatch::Sight sight;
  Clock::time_point now{seconds(1000)};
};

TEST_CASE("RingdWatch: of a ringd that beats, also slowly, nothing is said") {
  Watched watched;
  watched.sight.in_operation = true;
  watched.sight.operation_timeout = seconds(1);
  for (int i = 0; i < 100; ++i) {
    const RingdWatch::Verdict verdict = watched.Look(i % 2 == 0);
    CHECK_FALSE(verdict.warn);
    CHECK_FALSE(verdict.timed_out);
  }
}

TEST_CASE("RingdWatch: a silence is told within 4 s, once, to who waits") {
  Watched watched;
  watched.Look(true);
  watched.sight.in_call = true;
  CHECK_FALSE(watched.Look(false).warn);
  CHECK_FALSE(watched.Look(false).warn);
  const RingdWatch::Verdict verdict = watched.Look(false);
  CHECK(verdict.warn);
  CHECK(verdict.silence == seconds(3));
  CHECK(watched.WarningsIn(20) == 0);
  // The next silence is another one.
  CHECK_FALSE(watched.Look(true).warn);
  CHECK(watched.WarningsIn(20) == 1);
}

TEST_CASE("RingdWatch: while nobody waits nothing is said, and who comes then hears it") {
  Watched watched;
  watched.Look(true);
  CHECK(watched.WarningsIn(10) == 0);
  watched.sight.in_call = true;
  CHECK_FALSE(watched.Look(false).warn);
  const RingdWatch::Verdict verdict = watched.Look(false);
  CHECK(verdict.warn);
  CHECK(verdict.silence == seconds(12));
}

TEST_CASE("RingdWatch: who waits for a moment only hears nothing") {
  Watched watched;
  watched.Look(true);
  for (int i = 0; i < 20; ++i) {
    watched.sight.in_call = i % 2 == 0;
    CHECK_FALSE(watched.Look(false).warn);
  }
}

TEST_CASE("RingdWatch: a process that was stopped itself does not blame ringd") {
  Watched watched;
  watched.Look(true);
  watched.sight.in_call = true;
  CHECK_FALSE(watched.Look(false, seconds(600)).warn);
  CHECK_FALSE(watched.Look(true).warn);
}

TEST_CASE("RingdWatch: the operation timeout ends a wait that ringd could not end") {
  Watched watched;
  watched.sight.operation_timeout = seconds(5);
  watched.Look(true);
  watched.sight.in_operation = true;
  int looks = 0;
  while (!watched.Look(false).timed_out && looks < 100) ++looks;
  // Five seconds after the first look that found somebody waiting.
  CHECK(looks == 5);
}

TEST_CASE("RingdWatch: ranks that get on without ringd are left to it") {
  Watched watched;
  watched.sight.operation_timeout = seconds(2);
  watched.Look(true);
  watched.sight.in_operation = true;
  for (int i = 0; i < 20; ++i) {
    ++watched.sight.progress;
    const RingdWatch::Verdict verdict = watched.Look(false);
    CHECK_FALSE(verdict.timed_out);
    CHECK_FALSE(verdict.warn);
  }
}

TEST_CASE("RingdWatch: a wait for the answer to a call has no operation timeout") {
  Watched watched;
  watched.sight.operation_timeout = seconds(2);
  watched.sight.in_call = true;
  for (int i = 0; i < 20; ++i) CHECK_FALSE(watched.Look(false).timed_out);
}

}  // namespace
}  // namespace ringd::client
