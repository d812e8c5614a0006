#include "client/core/waiting/wait_loop.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd::client {
namespace {

using std::chrono::milliseconds;

// Is done at look number `done_at`; counts what it is asked.
struct CountingWaiter {
  struct Noted {
    explicit Noted(int& count) : in(count) { ++in; }
    ~Noted() { --in; }
    Noted(const Noted&) = delete;
    Noted& operator=(const Noted&) = delete;
    int& in;
  };

  Looked Look() {
    waiting_at_look = waits;
    if (++looks >= done_at) return Looked::kDone;
    return works ? Looked::kWorked : Looked::kNothing;
  }
  bool GoesOn() const { return goes_on; }
  Noted BeginWaiting() {
    ++begun;
    return Noted(waits);
  }
  void BeginSleeping() { ++sleeping; }
  bool LookLast() {
    ++last;
    return false;
  }
  void Sleep(Clock::time_point now, Clock::time_point deadline, bool worked) {
    CHECK(now < deadline);
    ++slept;
    had_worked = had_worked || worked;
    if (done_by_sleep) done_at = 0;
  }

  int done_at = 1 << 30;
  bool works = false;
  bool goes_on = true;
  bool done_by_sleep = false;
  int looks = 0;
  int waits = 0;
  int waiting_at_look = 0;
  int begun = 0;
  int sleeping = 0;
  int last = 0;
  int slept = 0;
  bool had_worked = false;
};

struct Loop {
  explicit Loop(std::chrono::nanoseconds budget) : spin(budget) {}
  bool Run(CountingWaiter& waiter, Clock::time_point deadline = Clock::time_point::max()) {
    WaitLoop loop(spin, waiters, {.quick_looks = 4, .looks_per_clock = 4});
    return loop.Run(waiter, deadline);
  }

  SpinPolicy spin;
  std::atomic<std::uint32_t> waiters{0};
};

constexpr milliseconds kSpin{20};

TEST_CASE("WaitLoop: what is done after a few looks is no wait") {
  Loop loop(kSpin);
  CountingWaiter waiter;
  waiter.done_at = 4;
  CHECK(loop.Run(waiter));
  CHECK(waiter.looks == 4);
  CHECK(waiter.begun == 0);
}

TEST_CASE("WaitLoop: what is done while it spins is noted, and sleeps for nothing") {
  Loop loop(kSpin);
  CountingWaiter waiter;
  waiter.done_at = 9;
  CHECK(loop.Run(waiter));
  CHECK(waiter.looks == 9);
  CHECK(waiter.waiting_at_look == 1);
  CHECK(waiter.waits == 0);
  CHECK(waiter.sleeping == 0);
  CHECK(loop.waiters == 0);
}

TEST_CASE("WaitLoop: sleeps after a spin in vain, and looks again after each sleep") {
  const bool spins = GENERATE(false, true);
  Loop loop(spins ? milliseconds(1) : milliseconds(0));
  CountingWaiter waiter;
  waiter.done_by_sleep = true;
  CHECK(loop.Run(waiter));
  CHECK(waiter.begun == 1);
  CHECK(waiter.sleeping == 1);
  CHECK(waiter.slept == 1);
  CHECK_FALSE(waiter.had_worked);
  // Without a spin: one look before the wait, one before the sleep, one behind it.
  if (!spins) CHECK(waiter.looks == 3);
}

TEST_CASE("WaitLoop: ends at its deadline, with a last look, also while there is work") {
  const bool works = GENERATE(false, true);
  Loop loop(milliseconds(0));
  CountingWaiter waiter;
  waiter.works = works;
  CHECK_FALSE(loop.Run(waiter, Clock::now() + milliseconds(5)));
  CHECK(waiter.last == 1);
  if (works) CHECK(waiter.slept == 0);
}

TEST_CASE("WaitLoop: ends when there is nothing to wait for any more") {
  const bool spins = GENERATE(false, true);
  Loop loop(spins ? kSpin : milliseconds(0));
  CountingWaiter waiter;
  waiter.goes_on = false;
  CHECK_FALSE(loop.Run(waiter));
  CHECK(waiter.slept == 0);
  CHECK(waiter.last == 0);
}

}  // namespace
}  // namespace ringd::client
