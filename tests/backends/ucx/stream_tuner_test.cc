#include "backends/ucx/stream_tuner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <random>

namespace ringd {
namespace {

using std::chrono::duration;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

using Catch::Matchers::Equals;

// A line as the tuner sees it, in time that passes at once.
struct Line {
  double bytes_per_second = 100e6;
  // What one connection can carry at most; more than the line: it is the line that is full.
  double bytes_per_connection = 1e12;
  // What there is to send, on average; more than that: something is always waiting.
  double offered = 1e12;
  // Of a look; uniform, plus and minus.
  double noise = 0;
  // Full, it keeps a queue of what the connections send too much.
  bool queues = true;
  // The connections' buffers are full and under way, also in front of a full line.
  bool full_buffers = true;
  Clock::duration round_trip = milliseconds(1);
  bool shared = false;
};

class Simulation {
 public:
  explicit Simulation(const Line& line, unsigned seed = 1) : line(line), random_(seed) {}

  // Looks for so long; `each` is called before each.
  void Run(
      Clock::duration time, const std::function<void()>& each = [] {}) {
    const Clock::time_point end = now + time;
    while (now < end) {
      each();
      Step();
    }
  }

  Line line;
  StreamTuner tuner;
  Clock::time_point now{hours(1)};
  int verdicts = 0;
  int kept = 0;
  Clock::duration in_trials{};

 private:
  void Step() {
    now += StreamTuner::kLookInterval;
    const double seconds_passed = duration<double>(StreamTuner::kLookInterval).count();
    const int connections = tuner.connections();
    const double could = std::min(line.bytes_per_second, connections * line.bytes_per_connection);
    const double carried = std::min(could, line.offered);
    const bool line_is_full = carried >= line.bytes_per_second;
    const bool starved = line.offered < could;
    std::uniform_real_distribution<double> noise(1 - line.noise, 1 + line.noise);
    counters_.acked_bytes += static_cast<std::uint64_t>(carried * seconds_passed * noise(random_));
    counters_.busy += connections * StreamTuner::kLookInterval;
    counters_.buffer_limited = !starved && (!line_is_full || line.full_buffers);
    counters_.least_round_trip = line.round_trip;
    counters_.round_trip = line.round_trip * (line_is_full && line.queues ? 10 : 1);
    counters_.starved = starved;
    counters_.shared = line.shared;
    if (connections != tuner.settled_connections()) in_trials += StreamTuner::kLookInterval;
    if (!tuner.Look(now, counters_)) return;
    ++verdicts;
    if (tuner.verdict().kept) ++kept;
  }

  StreamLook counters_;
  std::mt19937 random_;
};

TEST_CASE("StreamTuner: takes as many connections as a line far away needs, soon") {
  Simulation simulation({.bytes_per_second = 47e6,
                         .bytes_per_connection = 10e6,
                         .noise = 0.1,
                         .round_trip = milliseconds(60)});
  simulation.Run(seconds(30));
  CHECK(simulation.tuner.settled_connections() == 5);
  simulation.Run(hours(1));
  CHECK(simulation.tuner.settled_connections() == 5);
}

TEST_CASE("StreamTuner: takes no more than eight") {
  Simulation simulation({.bytes_per_second = 1e9, .bytes_per_connection = 10e6, .noise = 0.05});
  simulation.Run(minutes(1));
  CHECK(simulation.tuner.settled_connections() == StreamTuner::kMaxConnections);
  int most = 0;
  simulation.Run(hours(1), [&] { most = std::max(most, simulation.tuner.connections()); });
  CHECK(most == StreamTuner::kMaxConnections);
}

TEST_CASE("StreamTuner: does not try anything where nothing limits but the line") {
  Simulation simulation({.noise = 0.2, .full_buffers = false});
  simulation.Run(hours(2));
  CHECK(simulation.verdicts == 0);
  CHECK(simulation.in_trials == Clock::duration::zero());
  CHECK(simulation.tuner.verdict().before == 0);
}

TEST_CASE("StreamTuner: a full line with a queue sees trials for less than 1 in 200 of the time") {
  Simulation simulation({.noise = 0.2});
  simulation.Run(minutes(2));
  CHECK(simulation.verdicts == 1);
  simulation.Run(hours(10));
  CHECK(simulation.tuner.settled_connections() == 1);
  CHECK(simulation.kept == 0);
  CHECK(simulation.in_trials < seconds(36120) / 200);
}

TEST_CASE("StreamTuner: refusals make the next trial come later, also without a queue to see") {
  Simulation simulation({.queues = false});
  simulation.Run(minutes(3));
  const int first = simulation.verdicts;
  CHECK(first >= 2);
  simulation.Run(hours(10));
  CHECK(simulation.tuner.settled_connections() == 1);
  CHECK(simulation.verdicts < 25);
  CHECK(simulation.in_trials < seconds(36000) / 500);
}

TEST_CASE("StreamTuner: noise alone does not make it take more connections") {
  int kept = 0;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    // What each look sees is off by up to 40 %.
    Simulation simulation({.noise = 0.4, .queues = false}, seed);
    simulation.Run(hours(2));
    kept += simulation.kept;
  }
  CHECK(kept == 0);
}

TEST_CASE("StreamTuner: a line that gets faster during a trial is no success of the trial") {
  Simulation simulation({.bytes_per_second = 50e6, .queues = false});
  bool in_trial = false;
  simulation.Run(seconds(10), [&] {
    if (simulation.tuner.connections() == 2) in_trial = true;
    if (in_trial) simulation.line.bytes_per_second = 100e6;
  });
  REQUIRE(in_trial);
  CHECK(simulation.verdicts == 1);
  CHECK(simulation.tuner.settled_connections() == 1);
  CHECK(simulation.tuner.verdict().rate_after == Approx(100e6).epsilon(0.01));
}

TEST_CASE("StreamTuner: times at which bulk does not wait say nothing") {
  Simulation simulation({.bytes_per_connection = 10e6, .offered = 9e6});
  simulation.Run(hours(1));
  CHECK(simulation.verdicts == 0);
  CHECK(simulation.tuner.connections() == 1);
}

TEST_CASE("StreamTuner: a trial succeeds also if bulk then does not wait any more") {
  Simulation simulation({.bytes_per_connection = 10e6, .offered = 15e6});
  simulation.Run(seconds(10));
  CHECK(simulation.tuner.settled_connections() == 2);
  CHECK(simulation.tuner.verdict().rate_tried == Approx(15e6).epsilon(0.02));
}

TEST_CASE("StreamTuner: bulk that comes in short bursts counts by what waits of it") {
  // Half a second, then as long nothing.
  Simulation simulation({.bytes_per_second = 30e6, .bytes_per_connection = 10e6});
  int looks = 0;
  simulation.Run(minutes(2), [&] { simulation.line.offered = looks++ / 50 % 2 == 0 ? 1e12 : 1e3; });
  CHECK(simulation.tuner.settled_connections() == 3);
}

TEST_CASE("StreamTuner: gives connections up again that a changed line does not need") {
  Simulation simulation({.bytes_per_second = 40e6, .bytes_per_connection = 10e6, .noise = 0.02});
  simulation.Run(minutes(1));
  REQUIRE(simulation.tuner.settled_connections() == 4);
  simulation.line.bytes_per_connection = 100e6;
  simulation.line.noise = 0.05;
  int least = 4;
  simulation.Run(hours(20),
                 [&] { least = std::min(least, simulation.tuner.settled_connections()); });
  CHECK(least < 4);
  CHECK(simulation.tuner.settled_connections() < 4);
}

TEST_CASE("StreamTuner: while jobs take turns only a line without a queue gets more") {
  SECTION("with one") {
    Simulation simulation({.shared = true});
    simulation.Run(hours(1));
    CHECK(simulation.verdicts == 0);
  }
  SECTION("without one") {
    Simulation simulation({.bytes_per_second = 20e6, .bytes_per_connection = 10e6, .shared = true});
    simulation.Run(seconds(10));
    CHECK(simulation.tuner.settled_connections() == 2);
  }
}

TEST_CASE("StreamTuner: a trial ends without a verdict when others come to share the line") {
  Simulation simulation({.bytes_per_connection = 10e6});
  while (simulation.tuner.connections() == 1) simulation.Run(StreamTuner::kLookInterval);
  simulation.line.shared = true;
  simulation.Run(StreamTuner::kLookInterval);
  CHECK(simulation.tuner.connections() == 1);
  CHECK(simulation.verdicts == 0);
}

TEST_CASE("StreamTuner: a trial of connections that can't be looked at is given up") {
  Simulation simulation({.bytes_per_connection = 10e6});
  while (simulation.tuner.connections() == 1) simulation.Run(StreamTuner::kLookInterval);
  for (int i = 0; i < 1000; ++i) simulation.tuner.Pause();
  CHECK(simulation.tuner.connections() == 1);
  // And tried again, though not soon.
  simulation.Run(seconds(20));
  CHECK(simulation.verdicts == 0);
  simulation.Run(seconds(40));
  CHECK(simulation.tuner.settled_connections() > 1);
}

TEST_CASE("StreamTuner: a verdict reads as what has been measured") {
  CHECK_THAT(DescribeVerdict({1, 2, true, 11.26e6, 22.1e6, 11.31e6}),
             Equals("2 connections carry 22.1 MB/s, 1 connection carries 11.3 MB/s"));
}

}  // namespace
}  // namespace ringd
