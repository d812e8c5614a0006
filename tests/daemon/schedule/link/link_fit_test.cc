#include "daemon/schedule/link/link_fit.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kKiB = std::size_t{1} << 10;
constexpr std::size_t kMiB = std::size_t{1} << 20;

LinkModel Link(nanoseconds latency, double bytes_per_second, int nodes, std::size_t small = 0) {
  LinkModel link;
  link.latency = latency;
  link.bytes_per_second = bytes_per_second;
  link.node_count = nodes;
  link.small_bytes = small;
  return link;
}

// What one would measure if `link` were the truth.
std::vector<LinkObservation> Measured(const LinkModel& link,
                                      const std::vector<std::size_t>& sizes) {
  std::vector<LinkObservation> seen;
  for (const std::size_t bytes : sizes) {
    seen.push_back({bytes, link.AllReduceTime(bytes) - link.operation_overhead, 32});
  }
  return seen;
}

double Microseconds(nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }

}  // namespace

TEST_CASE("LinkModel: small all-reduces take recursive doubling's rounds") {
  CHECK(Link(microseconds(1), 1e9, 4, kKiB).ShapeOf(kKiB).rounds == 2);
  CHECK(Link(microseconds(1), 1e9, 4, kKiB).ShapeOf(kKiB).line_bytes == 2.0 * kKiB);
  CHECK(Link(microseconds(1), 1e9, 5, kKiB).ShapeOf(kKiB).rounds == 4);
  CHECK(Link(microseconds(1), 1e9, 4, kKiB).ShapeOf(2 * kKiB).rounds == 6);
  CHECK(Link(microseconds(1), 1e9, 4, kKiB).ShapeOf(2 * kKiB).line_bytes == 3.0 * kKiB);
  CHECK(Link(microseconds(1), 1e9, 1, kKiB).ShapeOf(kKiB).rounds == 0);
}

TEST_CASE("LinkModel: the smallest all-reduces of a few nodes go through one of them") {
  LinkModel link = Link(microseconds(1), 1e9, 4, 32 * kKiB);
  link.flat_bytes = 12 * kKiB;
  CHECK(link.ShapeOf(4 * kKiB).rounds == 2);
  CHECK(link.ShapeOf(4 * kKiB).line_bytes == 24.0 * kKiB);
  CHECK(link.ShapeOf(4 * kKiB + 1).line_bytes == 2.0 * (4 * kKiB + 1));
  CHECK_FALSE(link.IsRing(4 * kKiB));
  CHECK_FALSE(link.IsRing(32 * kKiB));
  CHECK(link.IsRing(32 * kKiB + 1));
  link.node_count = 2;
  CHECK(link.ShapeOf(kKiB).rounds == 1);
  link.node_count = 17;
  CHECK_FALSE(link.IsFlat(1));
}

TEST_CASE("SmallBytesOf: where doubling and ring take equally long") {
  const int nodes = GENERATE(3, 4, 5, 8, 12, 64);
  CAPTURE(nodes);
  const LinkModel ring = Link(microseconds(30), 125e6, nodes);
  const std::size_t bytes = SmallBytesOf(ring, kMiB);
  LinkModel doubling = ring;
  doubling.small_bytes = kMiB;
  REQUIRE(bytes > 0);
  REQUIRE(bytes < kMiB);
  CHECK(doubling.AllReduceTime(bytes) <= ring.AllReduceTime(bytes) + microseconds(1));
  CHECK(doubling.AllReduceTime(2 * bytes) > ring.AllReduceTime(2 * bytes));
}

TEST_CASE("SmallBytesOf: at most what it may, and all of that for two nodes") {
  CHECK(SmallBytesOf(Link(microseconds(500), 1e10, 4), 128 * kKiB) == 128 * kKiB);
  CHECK(SmallBytesOf(Link(microseconds(1), 1e6, 2), 128 * kKiB) == 128 * kKiB);
  CHECK(SmallBytesOf(Link(microseconds(1), 1e6, 4), 0) == 0);
}

TEST_CASE("FitLink: finds latency and bandwidth from any start") {
  const LinkModel truth = Link(microseconds(45), 117e6, 4, 32 * kKiB);
  const auto seen = Measured(truth, {64, 4 * kKiB, 64 * kKiB, kMiB, 32 * kMiB});
  const double start_rate = GENERATE(1e6, 1.25e9, 1e11);
  const auto start_latency = GENERATE(microseconds(1), microseconds(30), microseconds(5000));
  const LinkModel fitted = FitLink(seen, Link(start_latency, start_rate, 4, 32 * kKiB));
  CHECK(Microseconds(fitted.latency) == Approx(45).epsilon(0.02));
  CHECK(fitted.bytes_per_second == Approx(117e6).epsilon(0.02));
  CHECK(fitted.node_count == 4);
}

TEST_CASE("FitLink: what was not measured stays as it was") {
  const LinkModel truth = Link(microseconds(100), 117e6, 2);
  SECTION("latency, of large operations only") {
    const LinkModel fitted =
        FitLink(Measured(truth, {64 * kMiB}), Link(microseconds(30), 1.25e9, 2));
    CHECK(Microseconds(fitted.latency) == Approx(30).epsilon(0.05));
    CHECK(fitted.bytes_per_second == Approx(117e6).epsilon(0.02));
  }
  SECTION("bandwidth, of tiny operations only") {
    const LinkModel fitted = FitLink(Measured(truth, {16}), Link(microseconds(30), 1.25e9, 2));
    CHECK(Microseconds(fitted.latency) == Approx(100).epsilon(0.02));
    CHECK(fitted.bytes_per_second == Approx(1.25e9).epsilon(0.05));
  }
  SECTION("anything, of nothing") {
    const LinkModel fitted = FitLink({}, Link(microseconds(30), 1.25e9, 2));
    CHECK(Microseconds(fitted.latency) == Approx(30));
    CHECK(fitted.bytes_per_second == Approx(1.25e9));
  }
}

TEST_CASE("FitLink: small operations that take equally long are no sign of a boundless line") {
  // On a line of 10 Gbit/s whose shaper lets bursts of that size pass.
  const std::vector<LinkObservation> seen = {{512, microseconds(93), 9},
                                             {4 * kKiB, microseconds(92), 20},
                                             {16 * kKiB, microseconds(89), 14},
                                             {48 * kKiB, microseconds(90), 6},
                                             {100 * kKiB, microseconds(88), 5}};
  const LinkModel start = Link(microseconds(30), 1.25e9, 2, 128 * kKiB);
  CHECK(FitLink(seen, start).bytes_per_second < 30e9);
  // One large one tells what the line is like.
  auto with_large = seen;
  with_large.push_back({64 * kMiB, std::chrono::milliseconds(60), 1});
  CHECK(FitLink(with_large, start).bytes_per_second == Approx(64.0 * kMiB / 60e-3).epsilon(0.3));
}

TEST_CASE("FitLink: one disturbed size among several is weighed down") {
  const LinkModel truth = Link(microseconds(50), 1e9, 4);
  auto seen = Measured(truth, {64, 4 * kKiB, 256 * kKiB, kMiB, 8 * kMiB, 64 * kMiB});
  seen[3].time *= 4;
  const LinkModel fitted = FitLink(seen, Link(microseconds(30), 1.25e9, 4));
  CHECK(Microseconds(fitted.latency) == Approx(50).epsilon(0.25));
  CHECK(fitted.bytes_per_second == Approx(1e9).epsilon(0.15));
}

TEST_CASE("FitLink: times that no link explains give sane figures") {
  // Larger is faster: no latency and no bandwidth fit.
  const std::vector<LinkObservation> seen = {{kMiB, microseconds(9000), 4},
                                             {8 * kMiB, microseconds(5), 4},
                                             {0, microseconds(5), 4},
                                             {64, microseconds(0), 4}};
  const LinkModel fitted = FitLink(seen, Link(microseconds(30), 1.25e9, 3));
  CHECK(fitted.latency >= nanoseconds(100));
  CHECK(fitted.latency <= std::chrono::seconds(1));
  CHECK(fitted.bytes_per_second > 0);
  CHECK(fitted.bytes_per_second <= 1.1e13);
}

TEST_CASE("MergeObservations: of each size the node that waited least speaks") {
  const auto merged = MergeObservations({{{kMiB, microseconds(9000), 4}, {64, microseconds(70), 5}},
                                         {},
                                         {{kMiB + 8, microseconds(8000), 6}}});
  REQUIRE(merged.size() == 2);
  CHECK(merged[0] == LinkObservation{64, microseconds(70), 5});
  CHECK(merged[1] == LinkObservation{kMiB + 8, microseconds(8000), 6});
}

}  // namespace ringd
