#include "daemon/engine/spin_habit.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

using std::chrono::microseconds;

// Work that comes again and again, `gap` after the last was done; counts what is spun.
struct Worker {
  // Whether it spun at all in that gap.
  bool Wait(microseconds gap) {
    habit.OnWork(now);
    const Clock::time_point work = now + gap;
    bool spun = false;
    while (now < work) {
      if (habit.LooksOn(now)) {
        spun = true;
        now += microseconds(1);
      } else {
        now = work;
      }
    }
    return spun;
  }
  int Spun(int times, microseconds gap) {
    int spun = 0;
    for (int i = 0; i < times; ++i) spun += Wait(gap) ? 1 : 0;
    return spun;
  }

  SpinHabit habit{microseconds(50)};
  Clock::time_point now = Clock::time_point() + std::chrono::seconds(1);
};

}  // namespace

TEST_CASE("SpinHabit: looks as long as that is rewarded, and for no longer than its budget") {
  Worker worker;
  CHECK(worker.Spun(1000, microseconds(20)) == 1000);
  const Clock::time_point before = worker.now;
  worker.habit.OnWork(before);
  CHECK(worker.habit.LooksOn(before));
  CHECK(worker.habit.LooksOn(before + microseconds(49)));
  CHECK_FALSE(worker.habit.LooksOn(before + microseconds(50)));
  CHECK_FALSE(worker.habit.LooksOn(before + microseconds(51)));
}

TEST_CASE("SpinHabit: sleeps at once where looks are in vain, but tries now and then") {
  Worker worker;
  CHECK(worker.Spun(20, microseconds(200)) < 20);
  CHECK(worker.Spun(800, microseconds(200)) == 25);
  // And finds out when that has changed.
  worker.Spun(1000, microseconds(20));
  CHECK(worker.Spun(1000, microseconds(20)) == 1000);
}

TEST_CASE("SpinHabit: one look in four is too few, three in four are enough") {
  Worker worker;
  const auto spun = [&worker](int rewarded) {
    int count = 0;
    for (int i = 0; i < 4000; ++i) {
      const bool comes = i % 4 < rewarded;
      count += worker.Wait(comes ? microseconds(20) : microseconds(200)) ? 1 : 0;
    }
    return count;
  };
  CHECK(spun(3) > 3900);
  CHECK(spun(1) < 1000);
}

TEST_CASE("SpinHabit: without a budget it never looks, nor before there was work") {
  SpinHabit none{std::chrono::nanoseconds(0)};
  const Clock::time_point now = Clock::now();
  none.OnWork(now);
  CHECK_FALSE(none.LooksOn(now));
  SpinHabit idle{microseconds(50)};
  CHECK_FALSE(idle.LooksOn(now));
}

}  // namespace ringd
