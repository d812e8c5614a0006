#include "proto/base/spin_policy.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

void LearnTimes(SpinPolicy& policy, int times, nanoseconds waited) {
  for (int i = 0; i < times; ++i) policy.Learn(waited);
}

TEST_CASE("SpinPolicy: short waits spin for the budget") {
  SpinPolicy policy(microseconds(20));
  CHECK(policy.enabled());
  CHECK(policy.NextBudget() == microseconds(20));
  LearnTimes(policy, 100, microseconds(3));
  CHECK(policy.NextBudget() == microseconds(20));
}

TEST_CASE("SpinPolicy: waits that last somewhat longer than the budget are spun through") {
  SpinPolicy policy(microseconds(20));
  LearnTimes(policy, 50, microseconds(70));
  CHECK(policy.NextBudget() > microseconds(130));
  CHECK(policy.NextBudget() <= microseconds(140));
  LearnTimes(policy, 50, microseconds(180));
  CHECK(policy.NextBudget() == SpinPolicy::kStretch * microseconds(20));
}

TEST_CASE("SpinPolicy: when waits become short again, so do spins") {
  SpinPolicy policy(microseconds(20));
  LearnTimes(policy, 50, microseconds(180));
  LearnTimes(policy, 50, microseconds(1));
  CHECK(policy.NextBudget() == microseconds(20));
}

TEST_CASE("SpinPolicy: long waits in a row make the next ones glance, a shorter one ends that") {
  SpinPolicy policy(microseconds(20));
  LearnTimes(policy, 7, milliseconds(5));
  CHECK(policy.NextBudget() == microseconds(20));
  policy.Learn(milliseconds(5));
  CHECK(policy.NextBudget() == microseconds(2));
  LearnTimes(policy, 1000, milliseconds(5));
  CHECK(policy.NextBudget() == microseconds(2));
  policy.Learn(microseconds(150));
  CHECK(policy.NextBudget() >= microseconds(20));
}

TEST_CASE("SpinPolicy: a single long wait changes nothing") {
  SpinPolicy policy(microseconds(20));
  LearnTimes(policy, 50, microseconds(70));
  const nanoseconds before = policy.NextBudget();
  policy.Learn(milliseconds(300));
  CHECK(policy.NextBudget() == before);
}

TEST_CASE("SpinPolicy: without a budget nobody spins, whatever waits last") {
  SpinPolicy none;
  SpinPolicy negative(nanoseconds(-1));
  for (SpinPolicy* policy : {&none, &negative}) {
    LearnTimes(*policy, 50, nanoseconds(0));
    CHECK_FALSE(policy->enabled());
    CHECK(policy->NextBudget().count() == 0);
  }
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
}  // namespace ringd
