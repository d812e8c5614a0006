#include "daemon/schedule/routes/all_reduce_times.h"

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

TEST_CASE("SizesForRankExchange: flat as LargestFlat, with 55 % of the smallest one's time less") {
  const auto flat = [](const std::vector<AllReduceTimes>& times) {
    const RankExchangeSizes sizes = SizesForRankExchange(times, 4, 4681);
    // The other tree of four nodes is the same.
    CHECK(sizes.knomial == 0);
    return sizes.flat;
  };
  // Lost without that, won with it; beyond it was not tried.
  CHECK(flat(Times({{200, 180}})) == 4681);
  CHECK(flat(Times({{200, 90}})) == 0);
  // The line is slow: what the root gets takes longer and longer.
  const auto times = Times({{200, 180}, {600, 300}, {1100, 400}});
  CHECK(flat(times) < 1024);
  CHECK(flat(times) >= 64);
  CHECK(flat(Times({{100, 100}, {100, 100}, {100, 100}, {100, 100}})) == 16384);
  CHECK(flat({}) == 4681);
}

TEST_CASE(
    "SizesForRankExchange: nothing is faster than the root's line, however short the trial was") {
  // 4 KiB went through in 160 µs; but 12 KiB more take 740, so that 4 KiB keep the line for 247.
  const auto times = Times({{150, 200}, {150, 210}, {160, 230}, {900, 450}});
  const RankExchangeSizes sizes = SizesForRankExchange(times, 4, 4681);
  CHECK(sizes.flat > 2048);
  CHECK(sizes.flat < 4096);
}

TEST_CASE(
    "SizesForRankExchange: the k-nomial tree takes over where the root's line is what limits") {
  // 8 nodes at 1 Gbit/s: its fullest line carries 4 of 7 messages.
  const auto times = Times({{160, 230}, {165, 250}, {230, 330}, {970, 430}});
  const RankExchangeSizes sizes = SizesForRankExchange(times, 8, 4681);
  CHECK(sizes.flat > 1024);
  CHECK(sizes.flat < 4096);
  CHECK(sizes.knomial > 8192);
  CHECK(sizes.knomial < 16384);
  // A faster line: two levels cost more than they save.
  const auto fast = Times({{160, 230}, {165, 250}, {170, 330}, {180, 430}});
  CHECK(SizesForRankExchange(fast, 8, 4681).flat == 16384);
  // The tree would win over the node in the middle by less than 5 %, and not over doubling.
  const auto close = Times({{100, 107}, {100, 107}, {100, 107}, {100, 107}});
  CHECK(SizesForRankExchange(close, 8, 4681).flat == 16384);
  // Not tried: the smallest only, or nothing.
  CHECK(SizesForRankExchange(Times({{160, 230}}), 8, 4681).flat == 4681);
  CHECK(SizesForRankExchange(Times({{160, 230}}), 8, 4681).knomial <= 4681);
  CHECK(SizesForRankExchange({}, 8, 4681).flat == 4681);
  CHECK(SizesForRankExchange({}, 8, 4681).knomial == 0);
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
