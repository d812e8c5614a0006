#include "client/core/waiting/spin_policy.h"

#include <catch2/catch.hpp>

namespace ringd::client {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST_CASE("SpinPolicy: the default budget, unless told otherwise") {
  CHECK(SpinPolicy::BudgetFor({}) == SpinPolicy::kDefaultBudget);
  CHECK(SpinPolicy::BudgetFor(microseconds(7)) == microseconds(7));
  CHECK(SpinPolicy::BudgetFor(nanoseconds(-1)).count() == 0);
}

TEST_CASE("SpinPolicy: spins for nothing make waits glance, a rewarded one spins in full again") {
  SpinPolicy policy(microseconds(20));
  for (int i = 0; i < 8; ++i) {
    CHECK(policy.NextBudget() == microseconds(20));
    policy.Learn(false);
  }
  CHECK(policy.NextBudget() == microseconds(2));
  policy.Learn(true);
  CHECK(policy.NextBudget() == microseconds(20));
}

TEST_CASE("SpinPolicy: even when spins don't pay, one now and then is in full") {
  SpinPolicy policy(microseconds(20));
  int full = 0;
  for (int i = 0; i < 320; ++i) {
    if (policy.NextBudget() == microseconds(20)) ++full;
    policy.Learn(false);
  }
  CHECK(full >= 8 + 8);
  CHECK(full <= 8 + 12);
}

TEST_CASE("SpinPolicy: without a budget nobody spins") {
  SpinPolicy policy;
  CHECK(policy.NextBudget().count() == 0);
}

TEST_CASE("SpinRhythm: looks often while alone, and once between yields where others run") {
  SpinRhythm rhythm(32);
  CHECK(rhythm.looks() == 32);
  rhythm.Note(microseconds(5));
  CHECK(rhythm.looks() == 1);
  rhythm.Note(nanoseconds(400));
  CHECK(rhythm.looks() == 32);
}

TEST_CASE("SpinRhythm: yielding tells the time") {
  SpinRhythm rhythm(32);
  const Clock::time_point before = Clock::now();
  CHECK(rhythm.Yield() >= before);
}

}  // namespace
}  // namespace ringd::client
