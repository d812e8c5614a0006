#include "daemon/schedule/routes/ring_planner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "proto/base/clock.h"

namespace ringd {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kChunk = 128 * 1024;
constexpr double kGbit = 125e6;  // bytes per second
using Order = std::vector<std::size_t>;

// Links of 50 us and as many Gbit/s as `rate` says.
LinkMatrix LinksOf(std::size_t nodes, const std::function<double(std::size_t, std::size_t)>& rate) {
  LinkMatrix links(nodes);
  for (std::size_t from = 0; from < nodes; ++from) {
    for (std::size_t to = 0; to < nodes; ++to) {
      if (from != to) links.at(from, to) = {microseconds(50), rate(from, to) * kGbit};
    }
  }
  return links;
}

Order Ranks(std::size_t nodes) {
  Order order(nodes);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

bool IsRing(const Order& order, std::size_t nodes) {
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return !order.empty() && order.front() == 0 && sorted == Ranks(nodes);
}

// Edges of the ring for which `counts`.
int Edges(const Order& order, const std::function<bool(std::size_t, std::size_t)>& counts) {
  int edges = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    edges += counts(order[i], order[(i + 1) % order.size()]) ? 1 : 0;
  }
  return edges;
}

}  // namespace

TEST_CASE("PlanRing: a ring through racks crosses the slow lines between them once each way") {
  const std::size_t nodes = GENERATE(4, 7, 12, 13, 24);
  const std::size_t racks = GENERATE(2, 3);
  INFO(nodes << " nodes, " << racks << " racks");
  const auto crosses = [racks](std::size_t a, std::size_t b) { return a % racks != b % racks; };
  const Order ring =
      PlanRing(LinksOf(nodes, [&](auto a, auto b) { return crosses(a, b) ? 0.3 : 1.0; }), kChunk);
  CHECK(IsRing(ring, nodes));
  CHECK(Edges(ring, crosses) == static_cast<int>(racks));
}

TEST_CASE("PlanRing: many small racks are gone through one by one") {
  const auto crosses = [](std::size_t a, std::size_t b) { return a % 4 != b % 4; };
  const Order ring =
      PlanRing(LinksOf(8, [&](auto a, auto b) { return crosses(a, b) ? 1.0 : 2.5; }), kChunk);
  CHECK(Edges(ring, crosses) == 4);
}

TEST_CASE("PlanRing: racks whose nodes follow one another stay in the order of ranks") {
  const Order ring =
      PlanRing(LinksOf(8, [](auto a, auto b) { return a / 4 == b / 4 ? 1.0 : 0.2; }), kChunk);
  CHECK(ring == Ranks(8));
}

TEST_CASE("PlanRing: one slow pair is avoided, though every other edge costs more than before") {
  const std::size_t nodes = GENERATE(4, 6, 16);
  const auto slow = [](std::size_t a, std::size_t b) {
    return (a == 1 && b == 2) || (a == 2 && b == 1);
  };
  const Order ring =
      PlanRing(LinksOf(nodes, [&](auto a, auto b) { return slow(a, b) ? 0.1 : 1.0; }), kChunk);
  CHECK(IsRing(ring, nodes));
  CHECK(Edges(ring, slow) == 0);
}

TEST_CASE("PlanRing: a link may be slow in one direction only") {
  // The order of ranks takes each of them the wrong way.
  const auto slow = [](std::size_t a, std::size_t b) { return b == (a + 1) % 5; };
  const Order ring =
      PlanRing(LinksOf(5, [&](auto a, auto b) { return slow(a, b) ? 0.5 : 1.0; }), kChunk);
  CHECK(IsRing(ring, 5));
  CHECK(Edges(ring, slow) == 0);
}

TEST_CASE("PlanRing: a long way counts as a slow line does") {
  LinkMatrix links = LinksOf(4, [](auto, auto) { return 10.0; });
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) {
      if (a % 2 != b % 2) links.at(a, b).latency = microseconds(3000);
    }
  }
  const Order ring = PlanRing(links, kChunk);
  CHECK(Edges(ring, [](auto a, auto b) { return a % 2 != b % 2; }) == 2);
}

TEST_CASE("PlanRing: noise on equal links keeps the order of ranks") {
  const std::size_t nodes = GENERATE(4, 8, 12, 20);
  const double rate = GENERATE(1.0, 10.0, 40.0);
  const auto seed = GENERATE(range(0u, 20u));
  INFO(nodes << " nodes, " << rate << " Gbit/s, seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(0.85, 1.0);
  const LinkMatrix links = LinksOf(nodes, [&](auto, auto) { return rate * noise(random); });
  CHECK(PlanRing(links, kChunk) == Ranks(nodes));
}

TEST_CASE("PlanRing: with fewer than four nodes there is nothing to choose") {
  CHECK(PlanRing(LinkMatrix(), kChunk).empty());
  CHECK(PlanRing(LinksOf(3, [](auto a, auto b) { return a < b ? 0.1 : 1.0; }), kChunk) == Ranks(3));
}

TEST_CASE("PlanRing: is never behind the order of ranks, and finds what trying all finds") {
  const std::size_t nodes = GENERATE(4, 6, 7);
  const auto seed = GENERATE(range(0u, 30u));
  INFO(nodes << " nodes, seed " << seed);
  std::mt19937 random(seed);
  // Far apart, so that none counts as equal to another.
  std::vector<double> seconds(nodes * nodes);
  for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = 1e-3 * std::pow(1.7, i % 25);
  std::shuffle(seconds.begin(), seconds.end(), random);
  LinkMatrix links(nodes);
  const auto cost = [&](std::size_t a, std::size_t b) { return seconds[a * nodes + b]; };
  for (std::size_t a = 0; a < nodes; ++a) {
    for (std::size_t b = 0; b < nodes; ++b) {
      links.at(a, b) = {microseconds(0), static_cast<double>(kChunk) / cost(a, b)};
    }
  }
  const auto slowest = [&](const Order& order) {
    double most = 0;
    for (std::size_t i = 0; i < nodes; ++i) {
      most = std::max(most, cost(order[i], order[(i + 1) % nodes]));
    }
    return most;
  };
  double least = slowest(Ranks(nodes));
  for (Order order = Ranks(nodes); std::next_permutation(order.begin() + 1, order.end());) {
    least = std::min(least, slowest(order));
  }
  const Order ring = PlanRing(links, kChunk);
  CHECK(IsRing(ring, nodes));
  CHECK(slowest(ring) <= least * 1.1);
}

TEST_CASE("AgreedLinks: what only one of two measurements found is not believed") {
  const auto slow = [](std::size_t a, std::size_t b) { return a == 1 && b == 2; };
  const auto fast = [](std::size_t a, std::size_t b) { return a == 2 && b == 0; };
  const auto both = [](std::size_t a, std::size_t b) { return a == 3 && b == 1; };
  const LinkMatrix first =
      LinksOf(4, [&](auto a, auto b) { return slow(a, b) || both(a, b) ? 0.1 : 1.0; });
  const LinkMatrix second = LinksOf(4, [&](auto a, auto b) {
    return both(a, b) ? 0.15 : fast(a, b) ? 5.0 : 0.9;
  });
  const LinkMatrix agreed = AgreedLinks(first, second, kChunk);
  CHECK(agreed.at(1, 2) == second.at(1, 2));
  CHECK(agreed.at(2, 0) == first.at(2, 0));
  CHECK(agreed.at(3, 1) == second.at(3, 1));
  CHECK(AgreedLinks(LinkMatrix(), LinkMatrix(), kChunk).empty());
}

TEST_CASE("PlanRing: 64 nodes in four racks are ordered well, soon, and always alike") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> noise(0.9, 1.0);
  const auto crosses = [](std::size_t a, std::size_t b) { return a % 4 != b % 4; };
  const LinkMatrix links =
      LinksOf(64, [&](auto a, auto b) { return (crosses(a, b) ? 0.25 : 1.0) * noise(random); });
  const Clock::time_point began = Clock::now();
  const Order ring = PlanRing(links, kChunk);
  const auto took = Clock::now() - began;
  CHECK(IsRing(ring, 64));
  CHECK(Edges(ring, crosses) == 4);
  CHECK(PlanRing(links, kChunk) == ring);
  // Milliseconds; sanitizers and busy processors take their part.
  CHECK(took < std::chrono::seconds(5));
  INFO(std::chrono::duration<double>(took).count() << " s");
}

}  // namespace ringd
