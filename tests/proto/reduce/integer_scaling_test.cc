#include "proto/reduce/integer_scaling.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <random>

namespace ringd::reduce_internal {
namespace {

std::int64_t FloorQuotient(std::int64_t value, std::int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

TEST_CASE("FloorDivider: agrees with division for the edges and a million random pairs") {
  std::mt19937_64 random(1);
  const std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  const std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();
  int mismatches = 0;
  const auto check = [&](std::int64_t value, std::int64_t divisor) {
    const FloorDivider divide(divisor);
    mismatches += divide(value) != FloorQuotient(value, divisor);
    const auto u = static_cast<std::uint64_t>(value);
    mismatches += divide(u) != u / static_cast<std::uint64_t>(divisor);
  };
  for (const std::int64_t divisor :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7}, std::int64_t{64},
        std::int64_t{1000}, (std::int64_t{1} << 62) + 1, kHighest - 1, kHighest}) {
    for (std::int64_t near = -3; near <= 3; ++near) {
      check(near, divisor);
      check(kLowest + 3 + near, divisor);
      check(kHighest - 3 + near, divisor);
      check(static_cast<std::int64_t>(static_cast<std::uint64_t>(divisor) * 5 +
                                      static_cast<std::uint64_t>(near)),
            divisor);
    }
  }
  for (int i = 0; i < 1000000; ++i) {
    const std::uint64_t divisor = random() >> (1 + random() % 63);
    check(static_cast<std::int64_t>(random()),
          static_cast<std::int64_t>(divisor == 0 ? 1 : divisor));
  }
  CHECK(mismatches == 0);
}

TEST_CASE("MultiplyClamped: truncates toward zero and clamps to the type") {
  CHECK(MultiplyClamped<std::int32_t>(7, 0.5) == 3);
  CHECK(MultiplyClamped<std::int32_t>(-7, 0.5) == -3);
  CHECK(MultiplyClamped<std::int32_t>(1 << 30, 4.0) == std::numeric_limits<std::int32_t>::max());
  CHECK(MultiplyClamped<std::int32_t>(1 << 30, -4.0) == std::numeric_limits<std::int32_t>::min());
  CHECK(MultiplyClamped<std::uint8_t>(200, 2.0) == 255);
  CHECK(MultiplyClamped<std::uint8_t>(200, -1.0) == 0);
  CHECK(MultiplyClamped<std::uint8_t>(255, 0.999) == 254);
  CHECK(MultiplyClamped<std::int64_t>(std::numeric_limits<std::int64_t>::max(), 1.5) ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(MultiplyClamped<std::uint64_t>(std::numeric_limits<std::uint64_t>::max(), 0.5) ==
        std::uint64_t{1} << 63);
  CHECK(MultiplyClamped<std::int32_t>(5, std::numeric_limits<double>::quiet_NaN()) == 0);
  CHECK(MultiplyClamped<std::int32_t>(0, std::numeric_limits<double>::infinity()) == 0);
}

}  // namespace
}  // namespace ringd::reduce_internal
