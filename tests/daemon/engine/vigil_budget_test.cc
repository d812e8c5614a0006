#include "daemon/engine/vigil_budget.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

const Clock::time_point kStart = Clock::time_point(seconds(1000));

TEST_CASE("VigilBudget: what has been saved can be spent, and once only") {
  VigilBudget budget(kStart);
  CHECK_FALSE(budget.TrySpend(microseconds(1), kStart));
  const Clock::time_point later = kStart + milliseconds(50);
  CHECK_FALSE(budget.TrySpend(microseconds(1001), later));
  CHECK(budget.TrySpend(microseconds(1000), later));
  CHECK_FALSE(budget.TrySpend(microseconds(1), later));
}

TEST_CASE("VigilBudget: a long rest saves no more than the longest vigil") {
  VigilBudget budget(kStart);
  const Clock::time_point later = kStart + std::chrono::hours(10);
  CHECK_FALSE(budget.TrySpend(VigilBudget::kMost + nanoseconds(1), later));
  CHECK(budget.TrySpend(VigilBudget::kMost, later));
  CHECK_FALSE(budget.TrySpend(microseconds(1), later));
}

TEST_CASE("VigilBudget: whatever is asked for, it is a fiftieth of the time in the long run") {
  VigilBudget budget(kStart);
  Clock::time_point now = kStart;
  nanoseconds spent{0};
  for (int i = 0; i < 10'000; ++i) {
    now += milliseconds(1);
    const microseconds asked((i * 37) % 400);
    if (budget.TrySpend(asked, now)) spent += asked;
  }
  CHECK(spent <= (now - kStart) / 50);
  CHECK(spent > (now - kStart) / 60);
}

}  // namespace
}  // namespace ringd
