#include "daemon/schedule/all_reduce_times.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;

// Of the first sizes: what going through one node takes, and recursive doubling.
std::vector<AllReduceTimes> Times(const std::vector<std::pair<int, int>>& flat_and_doubling_us) {
  std::vector<AllReduceTimes> times;
  for (const auto& [flat, doubling] : flat_and_doubling_us) {
    times.push_back({kTriedBytes[times.size()], microseconds(flat), microseconds(doubling)});
  }
  return times;
}

}  // namespace

TEST_CASE("LargestFlat: one node in the middle must win by 5 %, from the smallest size on") {
  CHECK(LargestFlat(Times({{200, 150}, {200, 300}, {200, 900}, {200, 900}}), 4681) == 0);
  CHECK(LargestFlat(Times({{200, 209}}), 4681) == 0);
  CHECK(LargestFlat(Times({{200, 210}, {500, 100}}), 4681) == 64);
  CHECK(LargestFlat(Times({{100, 200}, {100, 200}, {100, 200}, {100, 200}}), 4681) == 16384);
}

TEST_CASE("LargestOnFastPath: as LargestFlat, with 55 % of the smallest one's time less") {
  // Lost without that, won with it; beyond it was not tried.
  CHECK(LargestOnFastPath(Times({{200, 180}}), 4681) == 4681);
  CHECK(LargestOnFastPath(Times({{200, 90}}), 4681) == 0);
  // The line is slow: what the root gets takes longer and longer.
  const auto times = Times({{200, 180}, {600, 300}, {1100, 400}});
  const std::size_t limit = LargestOnFastPath(times, 4681);
  CHECK(limit < 1024);
  CHECK(limit >= 64);
  CHECK(LargestOnFastPath(Times({{100, 100}, {100, 100}, {100, 100}, {100, 100}}), 4681) == 16384);
  CHECK(LargestOnFastPath({}, 4681) == 4681);
}

TEST_CASE("LargestFlat: between a size that wins and one that loses lies the limit") {
  // 4 KiB gain 100 µs, the margin of 5 % taken off; 16 KiB lose 210 and what doubling takes less.
  const auto limit = [](int doubling) {
    return LargestFlat(Times({{100, 305}, {100, 305}, {100, 205}, {200, doubling}}), 0);
  };
  CHECK(limit(110) == 4096 + 12288 / 2);
  CHECK(limit(190) > 4096 + 12288 / 2);
  CHECK(limit(10) < 4096 + 12288 / 2);
  CHECK(limit(10) >= 4096);
}

TEST_CASE("LargestFlat: what was not tried stays as assumed, unless a smaller size has lost") {
  CHECK(LargestFlat({}, 4681) == 4681);
  CHECK(LargestFlat(Times({{100, 200}}), 4681) == 4681);
  CHECK(LargestFlat(Times({{100, 200}, {100, 200}, {100, 200}}), 2184) == 4096);
  CHECK(LargestFlat(Times({{100, 200}, {100, 50}}), 4681) < 1024);
}

}  // namespace ringd
