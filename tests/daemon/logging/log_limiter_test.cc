#include "daemon/logging/log_limiter.h"

#include <catch2/catch.hpp>

namespace ringd {
namespace {

TEST_CASE("LogLimiter: lets so many lines pass per period and counts the others") {
  const Clock::time_point start{};
  const Clock::duration period = std::chrono::seconds(10);
  LogLimiter limiter(2, period);
  CHECK(limiter.Pass(start) == 0u);
  CHECK(limiter.Pass(start) == 0u);
  CHECK_FALSE(limiter.Pass(start).has_value());
  CHECK_FALSE(limiter.Pass(start + period / 2).has_value());
  CHECK(limiter.Pass(start + period) == 2u);
  CHECK(limiter.Pass(start + period) == 0u);
}

}  // namespace
}  // namespace ringd
