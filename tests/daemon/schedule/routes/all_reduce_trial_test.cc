#include "daemon/schedule/routes/all_reduce_trial.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

using Cost = std::function<nanoseconds(const AllReduceTrial::Step&)>;

// Nodes that carry out the trial together; an all-reduce takes what `cost` says, and ends at node i
// `skew` times i later than at node 0. Node i also begins as much later.
struct World {
  World(std::size_t node_count, const Cost& cost_of, nanoseconds skew_of = nanoseconds(0))
      : trials(node_count), cost(cost_of), skew(skew_of) {}

  // False if the nodes did not want the same.
  bool Run() {
    while (!trials.front().over()) {
      const AllReduceTrial::Step step = trials.front().step();
      AllReduceTrial::Word greatest = trials.front().word();
      for (const AllReduceTrial& trial : trials) {
        if (trial.over()) return false;
        const AllReduceTrial::Step other = trial.step();
        if (other.bytes != step.bytes || other.flat != step.flat) return false;
        greatest.elapsed_seconds = std::max(greatest.elapsed_seconds, trial.word().elapsed_seconds);
        greatest.flat_may_win = std::max(greatest.flat_may_win, trial.word().flat_may_win);
      }
      steps.push_back(step);
      now += cost(step);
      for (std::size_t node = 0; node < trials.size(); ++node) {
        trials[node].OnDone(now + skew * static_cast<int>(node), greatest);
      }
    }
    return std::all_of(trials.begin(), trials.end(), [&](const AllReduceTrial& trial) {
      return trial.over() && trial.times().size() == Sizes();
    });
  }
  std::size_t Sizes() const { return trials.front().times().size(); }

  std::vector<AllReduceTrial> trials;
  Cost cost;
  nanoseconds skew;
  TimePoint now{milliseconds(1'000'000)};
  std::vector<AllReduceTrial::Step> steps;
};

nanoseconds Took(const World& world) {
  nanoseconds total(0);
  for (std::size_t i = 1; i < world.steps.size(); ++i) total += world.cost(world.steps[i]);
  return total;
}

}  // namespace

TEST_CASE("AllReduceTrial: tries both ways in turns at each size, and tells what they took") {
  World world(4, [](const AllReduceTrial::Step& step) {
    return microseconds((step.flat ? 10 : 25)) + nanoseconds(step.bytes);
  });
  REQUIRE(world.Run());
  REQUIRE(world.Sizes() == kTriedBytes.size());
  for (std::size_t size = 0; size < kTriedBytes.size(); ++size) {
    const AllReduceTimes& times = world.trials[2].times()[size];
    CHECK(times.bytes == kTriedBytes[size]);
    CHECK(times.flat == microseconds(10) + nanoseconds(times.bytes));
    CHECK(times.doubling == microseconds(25) + nanoseconds(times.bytes));
  }
  // Fast ones are repeated so often, and no more.
  constexpr int kGroup = 1 + AllReduceTrial::kCountedInGroup;
  CHECK(world.steps.size() == kTriedBytes.size() * 2 * kGroup * AllReduceTrial::kMostRounds);
  CHECK(world.steps[0].flat);
  CHECK_FALSE(world.steps[kGroup].flat);
  CHECK(world.steps[2 * kGroup].flat);
}

TEST_CASE("AllReduceTrial: what an all-reduce takes when the way changes does not count") {
  bool before = false;
  World world(3, [&](const AllReduceTrial::Step& step) {
    const bool first = std::exchange(before, step.flat) != step.flat;
    return microseconds(first ? 500 : step.flat ? 10 : 20);
  });
  REQUIRE(world.Run());
  CHECK(world.trials[0].times()[0].flat == microseconds(10));
  CHECK(world.trials[0].times()[0].doubling == microseconds(20));
}

TEST_CASE("AllReduceTrial: a round in which a processor was busy does not speak") {
  int calls = 0;
  World world(3, [&](const AllReduceTrial::Step& step) {
    return microseconds(++calls % 37 == 0 ? 3000 : step.flat ? 100 : 150);
  });
  REQUIRE(world.Run());
  CHECK(world.trials[0].times()[0].flat == microseconds(100));
  CHECK(world.trials[0].times()[0].doubling == microseconds(150));
}

TEST_CASE("AllReduceTrial: nodes end alike when the time is spent, and soon") {
  const auto one = GENERATE(microseconds(1), microseconds(130), microseconds(700),
                            microseconds(2000), microseconds(30'000), microseconds(400'000));
  const auto skew = GENERATE(nanoseconds(0), microseconds(40));
  INFO(one.count() << " us, skew " << skew.count());
  World world(
      5, [&](const AllReduceTrial::Step& step) { return one * (step.flat ? 1 : 2); }, skew);
  REQUIRE(world.Run());
  // Word of it needs one more, which comes after the one that was too long.
  CHECK(Took(world) <= AllReduceTrial::kBudget + 4 * one);
  if (one >= microseconds(30'000)) {
    CHECK(world.Sizes() == 0);
  } else {
    CHECK(world.Sizes() >= 1);
  }
  for (const AllReduceTrial& trial : world.trials) {
    for (const AllReduceTimes& times : trial.times()) {
      CHECK(times.flat == one);
      CHECK(times.doubling == 2 * one);
    }
  }
}

TEST_CASE("AllReduceTrial: a size that was tried often enough counts when the time is spent") {
  // Three rounds of the first size take 91.5 ms, those of the next one 9 ms, and its share is 12.5.
  World world(3, [](const AllReduceTrial::Step& step) {
    return microseconds((step.bytes == 64 ? 3050 : 300) + (step.flat ? 0 : 1));
  });
  REQUIRE(world.Run());
  CHECK(world.Sizes() == 2);
  CHECK(world.trials[1].times().back().flat == microseconds(300));
  CHECK(world.steps.back().bytes == 1024);
}

TEST_CASE("AllReduceTrial: larger sizes are not tried when one node in the middle has lost") {
  World world(4, [](const AllReduceTrial::Step& step) {
    if (!step.flat) return microseconds(20);
    return microseconds(step.bytes == 64 ? 10 : 30);
  });
  REQUIRE(world.Run());
  CHECK(world.Sizes() == 2);
  CHECK(world.steps.back().bytes == 4096);  // it brought the word
  CHECK(world.steps[world.steps.size() - 2].bytes == 1024);
}

TEST_CASE("AllReduceTrial: what is no number ends it") {
  AllReduceTrial trial;
  AllReduceTrial::Word word;
  SECTION("time") { word.elapsed_seconds = std::numeric_limits<double>::quiet_NaN(); }
  SECTION("the other") { word.flat_may_win = std::numeric_limits<double>::quiet_NaN(); }
  trial.OnDone(TimePoint(milliseconds(1)), word);
  CHECK(trial.over());
  CHECK(trial.times().empty());
}

}  // namespace ringd
