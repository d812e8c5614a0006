#include "daemon/schedule/routes/ring_planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "proto/base/median.h"

namespace ringd {
namespace {

using Tour = std::vector<std::size_t>;  // begins with 0

constexpr std::size_t kFewestNodes = 4;  // with fewer all rings are alike, but for their direction
constexpr std::size_t kMostExactNodes = 12;
constexpr double kGain = 1.10;
constexpr double kEqualFactor = 1.5;
constexpr double kEqualSeconds = 50e-6;
// Of local search from one start, each with all moves tried; far above what is needed.
constexpr int kMostRounds = 100;
constexpr std::size_t kLongestMoved = 3;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double SecondsOf(const MeasuredLink& link, std::size_t chunk_bytes) {
  return std::chrono::duration<double>(link.latency).count() +
         static_cast<double>(chunk_bytes) / link.bytes_per_second;
}

void AppendSeconds(const LinkMatrix& links, std::size_t chunk_bytes, std::vector<double>& all) {
  for (std::size_t from = 0; from < links.node_count(); ++from) {
    for (std::size_t to = 0; to < links.node_count(); ++to) {
      if (from != to) all.push_back(SecondsOf(links.at(from, to), chunk_bytes));
    }
  }
}

// Seconds that a chunk takes from node to node.
class EdgeCosts {
 public:
  EdgeCosts(const LinkMatrix& links, std::size_t chunk_bytes)
      : node_count_(links.node_count()), seconds_(node_count_ * node_count_, 0) {
    std::vector<double> all;
    AppendSeconds(links, chunk_bytes, all);
    const double median = MedianOf(all);
    const double least = std::min(median / kEqualFactor, median - kEqualSeconds);
    const double most = std::max(median * kEqualFactor, median + kEqualSeconds);
    for (std::size_t from = 0; from < node_count_; ++from) {
      for (std::size_t to = 0; to < node_count_; ++to) {
        if (from == to) continue;
        const double seconds = SecondsOf(links.at(from, to), chunk_bytes);
        const bool ordinary = seconds >= least && seconds <= most;
        seconds_[from * node_count_ + to] = ordinary ? median : seconds;
      }
    }
  }

  std::size_t node_count() const noexcept { return node_count_; }
  double at(std::size_t from, std::size_t to) const noexcept {
    return seconds_[from * node_count_ + to];
  }

 private:
  std::size_t node_count_;
  std::vector<double> seconds_;
};

struct Score {
  double slowest = 0;
  double sum = 0;

  bool BetterThan(const Score& other) const noexcept {
    // Sums of the same edges in another order may differ in their last bits.
    constexpr double kRounding = 1e-9;
    if (slowest != other.slowest) return slowest < other.slowest;
    return sum < other.sum * (1 - kRounding);
  }
};

// Edges faster than `floor` count as that fast as far as the slowest one is asked for.
Score ScoreOf(const Tour& tour, const EdgeCosts& costs, double floor = 0) {
  Score score{floor, 0};
  for (std::size_t i = 0; i < tour.size(); ++i) {
    const double cost = costs.at(tour[i], tour[i + 1 == tour.size() ? 0 : i + 1]);
    score.slowest = std::max(score.slowest, cost);
    score.sum += cost;
  }
  return score;
}

Tour RankOrder(std::size_t node_count) {
  Tour tour(node_count);
  std::iota(tour.begin(), tour.end(), std::size_t{0});
  return tour;
}

// The tour for which the costs combined along it are least, where all edges cost at most `limit`;
// of several the first by its nodes' numbers. `combine` must be monotonous in its first argument.
template <typename Combine>
Tour HeldKarp(const EdgeCosts& costs, double limit, Combine combine) {
  const std::size_t others = costs.node_count() - 1;  // node i+1 is bit i
  const std::size_t sets = std::size_t{1} << others;
  struct Best {
    double cost = kInfinity;
    std::uint8_t next = 0;
  };
  // Of the ways from node `first` of a set through all of it to node 0.
  std::vector<Best> best(sets * others);
  const auto edge = [&](std::size_t from, std::size_t to) {
    const double cost = costs.at(from, to);
    return cost <= limit ? cost : kInfinity;
  };
  for (std::size_t node = 0; node < others; ++node) {
    best[(std::size_t{1} << node) * others + node].cost = edge(node + 1, 0);
  }
  for (std::size_t set = 1; set < sets; ++set) {
    for (std::size_t first = 0; first < others; ++first) {
      const double cost = best[set * others + first].cost;
      if (cost == kInfinity) continue;
      for (std::size_t before = 0; before < others; ++before) {
        if ((set >> before & 1) != 0) continue;
        Best& way = best[(set | std::size_t{1} << before) * others + before];
        const double through = combine(cost, edge(before + 1, first + 1));
        if (through < way.cost) way = {through, static_cast<std::uint8_t>(first)};
      }
    }
  }
  std::size_t set = sets - 1;
  std::size_t first = 0;
  double least = kInfinity;
  for (std::size_t node = 0; node < others; ++node) {
    const double cost = combine(best[set * others + node].cost, edge(0, node + 1));
    if (cost < least) {
      least = cost;
      first = node;
    }
  }
  if (least == kInfinity) return RankOrder(costs.node_count());
  Tour tour = {0};
  while (set != 0) {
    tour.push_back(first + 1);
    const std::size_t next = best[set * others + first].next;
    set &= ~(std::size_t{1} << first);
    first = next;
  }
  return tour;
}

Tour NearestNeighbours(const EdgeCosts& costs, std::size_t start) {
  std::vector<bool> visited(costs.node_count(), false);
  Tour tour = {start};
  visited[start] = true;
  while (tour.size() < costs.node_count()) {
    std::size_t nearest = costs.node_count();
    for (std::size_t node = 0; node < costs.node_count(); ++node) {
      if (visited[node]) continue;
      if (nearest == costs.node_count() ||
          costs.at(tour.back(), node) < costs.at(tour.back(), nearest)) {
        nearest = node;
      }
    }
    visited[nearest] = true;
    tour.push_back(nearest);
  }
  std::rotate(tour.begin(), std::find(tour.begin(), tour.end(), std::size_t{0}), tour.end());
  return tour;
}

// Takes `changed` for `tour` if it is better.
bool Improve(Tour& tour, Score& score, const Tour& changed, const EdgeCosts& costs, double floor) {
  const Score reached = ScoreOf(changed, costs, floor);
  if (!reached.BetterThan(score)) return false;
  tour = changed;
  score = reached;
  return true;
}

void SearchAround(Tour& tour, const EdgeCosts& costs, double floor) {
  const std::size_t count = tour.size();
  Score score = ScoreOf(tour, costs, floor);
  Tour changed;
  bool improved = true;
  for (int round = 0; improved && round < kMostRounds; ++round) {
    improved = false;
    for (std::size_t begin = 1; begin < count; ++begin) {
      for (std::size_t end = begin + 1; end <= count; ++end) {
        // Node 0 stays in front: a ring begins anywhere.
        changed = tour;
        std::reverse(changed.begin() + static_cast<std::ptrdiff_t>(begin),
                     changed.begin() + static_cast<std::ptrdiff_t>(end));
        improved = Improve(tour, score, changed, costs, floor) || improved;
        for (std::size_t length = 1; length <= std::min(kLongestMoved, end - begin - 1); ++length) {
          // The first nodes of [begin, end) go behind its others.
          changed = tour;
          std::rotate(changed.begin() + static_cast<std::ptrdiff_t>(begin),
                      changed.begin() + static_cast<std::ptrdiff_t>(begin + length),
                      changed.begin() + static_cast<std::ptrdiff_t>(end));
          improved = Improve(tour, score, changed, costs, floor) || improved;
          // Its last nodes before its others.
          changed = tour;
          std::rotate(changed.begin() + static_cast<std::ptrdiff_t>(begin),
                      changed.begin() + static_cast<std::ptrdiff_t>(end - length),
                      changed.begin() + static_cast<std::ptrdiff_t>(end));
          improved = Improve(tour, score, changed, costs, floor) || improved;
        }
      }
    }
  }
}

// How slow the slowest edge may be while the sum is made small, if `fastest` is the least possible
// and `ranks` what the order of ranks has.
double LimitOf(double fastest, double ranks) { return std::min(kGain * fastest, ranks); }

Tour SearchBest(const EdgeCosts& costs) {
  Tour best = RankOrder(costs.node_count());
  Score score = ScoreOf(best, costs);
  const double ranks = score.slowest;
  for (std::size_t start = 0; start < costs.node_count(); ++start) {
    Improve(best, score, NearestNeighbours(costs, start), costs, 0);
  }
  SearchAround(best, costs, 0);
  SearchAround(best, costs, LimitOf(ScoreOf(best, costs).slowest, ranks));
  return best;
}

Tour FindBest(const EdgeCosts& costs) {
  const Tour fastest =
      HeldKarp(costs, kInfinity, [](double a, double b) { return std::max(a, b); });
  const double ranks = ScoreOf(RankOrder(costs.node_count()), costs).slowest;
  const double limit = LimitOf(ScoreOf(fastest, costs).slowest, ranks);
  return HeldKarp(costs, limit, [](double a, double b) { return a + b; });
}

}  // namespace

std::vector<std::size_t> PlanRing(const LinkMatrix& links, std::size_t chunk_bytes) {
  Tour ranks = RankOrder(links.node_count());
  if (links.node_count() < kFewestNodes) return ranks;
  const EdgeCosts costs(links, chunk_bytes);
  Tour best = links.node_count() <= kMostExactNodes ? FindBest(costs) : SearchBest(costs);
  const Score now = ScoreOf(ranks, costs);
  const Score then = ScoreOf(best, costs);
  const bool faster = then.slowest * kGain < now.slowest;
  const bool shorter = then.slowest <= now.slowest && then.sum * kGain < now.sum;
  return faster || shorter ? best : ranks;
}

LinkMatrix AgreedLinks(const LinkMatrix& first, const LinkMatrix& second, std::size_t chunk_bytes) {
  LinkMatrix agreed = first;
  if (first.node_count() < 2) return agreed;
  std::vector<double> all;
  AppendSeconds(first, chunk_bytes, all);
  AppendSeconds(second, chunk_bytes, all);
  const double median = MedianOf(all);
  const auto distance = [&](const MeasuredLink& link) {
    return std::abs(std::log(SecondsOf(link, chunk_bytes) / median));
  };
  for (std::size_t from = 0; from < first.node_count(); ++from) {
    for (std::size_t to = 0; to < first.node_count(); ++to) {
      if (from == to) continue;
      const MeasuredLink& other = second.at(from, to);
      if (distance(other) < distance(first.at(from, to))) agreed.at(from, to) = other;
    }
  }
  return agreed;
}

}  // namespace ringd
