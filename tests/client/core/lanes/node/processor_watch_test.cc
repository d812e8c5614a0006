#include "client/core/lanes/node/processor_watch.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ringd::client {
namespace {

using std::chrono::milliseconds;

cpu_set_t Processors(const std::vector<int>& numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(number, &set);
  return set;
}

// A machine whose count is set by hand.
struct Machine {
  ProcessorTimes times{.at = Clock::time_point(std::chrono::hours(1)),
                       .idle = {},
                       .own = {},
                       .processors = 4,
                       .online = 4};

  ProcessorWatch Watch(std::uint32_t helpers) {
    return ProcessorWatch(helpers, [this] { return times; });
  }
  // One piece of computing, in which so many processors are idle.
  void Compute(ProcessorWatch& watch, milliseconds length, double idle, double own = 0) {
    times.at += ProcessorWatch::kInterval;
    watch.Begin(times.at);
    times.at += length;
    times.idle += std::chrono::duration_cast<std::chrono::nanoseconds>(idle * length);
    times.own += std::chrono::duration_cast<std::chrono::nanoseconds>(own * length);
    watch.End();
  }
};

constexpr const char* kStat =
    "cpu  40 4 400 4000 40 0 4 0 0 0\n"
    "cpu0 10 1 100 1000 10 0 1 0 0 0\n"
    "cpu1 10 1 100 2000 20 0 1 0 0 0\n"
    "cpu10 10 1 100 500 5 0 1 0 0 0\n"
    "intr 1234 5 6\n"
    "cpu2 0 0 0 7 7\n";

TEST_CASE("ReadIdleTicks: idle time and waits for disks of the processors that are asked for") {
  const auto read = [](const std::vector<int>& numbers) {
    return ReadIdleTicks(kStat, Processors(numbers)).value();
  };
  CHECK(read({0}).ticks == 1010);
  CHECK(read({1, 10}).ticks == 2525);
  CHECK(read({0, 1, 10, 11}).ticks == 3535);
  CHECK(read({0, 1, 10, 11}).processors == 3);
  CHECK(read({1}).processors == 1);
  CHECK(read({1}).online == 3);
}

TEST_CASE("ReadIdleTicks: nothing where the file has no such processor, or is another") {
  CHECK_FALSE(ReadIdleTicks(kStat, Processors({2})).has_value());
  CHECK_FALSE(ReadIdleTicks(kStat, Processors({})).has_value());
  CHECK_FALSE(ReadIdleTicks("", Processors({0})).has_value());
  CHECK_FALSE(ReadIdleTicks("cpu0 1 2 3", Processors({0})).has_value());
  CHECK_FALSE(ReadIdleTicks("cpu0 1 2 3 x 5\n", Processors({0})).has_value());
  CHECK_FALSE(ReadIdleTicks("cpux 1 2 3 4 5\n", Processors({0})).has_value());
  CHECK_FALSE(ReadIdleTicks("cpu99999999999 1 2 3 4 5\n", Processors({0})).has_value());
}

TEST_CASE("ReadProcessorTimes: what this machine has grows by as much as time allows") {
  const std::optional<ProcessorTimes> before = ReadProcessorTimes();
  REQUIRE(before.has_value());
  std::this_thread::sleep_for(milliseconds(50));
  const std::optional<ProcessorTimes> after = ReadProcessorTimes();
  REQUIRE(after.has_value());
  CHECK(after->at - before->at >= milliseconds(50));
  CHECK(after->own > before->own);
  CHECK(after->own - before->own < after->at - before->at);
  CHECK(after->idle >= before->idle);
}

TEST_CASE("ProcessorWatch: there is room where processors are idle, and at first") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(2);
  CHECK(watch.has_room());
  machine.Compute(watch, milliseconds(200), 2);
  CHECK(watch.has_room());
  machine.Compute(watch, milliseconds(200), 0.1);
  CHECK_FALSE(watch.has_room());
  machine.Compute(watch, milliseconds(200), 1.5);
  CHECK(watch.has_room());
}

TEST_CASE("ProcessorWatch: what the helpers use themselves counts as idle") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(2);
  machine.Compute(watch, milliseconds(200), 0.4, 0.6);
  CHECK(watch.has_room());
  machine.Compute(watch, milliseconds(200), 0.4, 0.05);
  CHECK_FALSE(watch.has_room());
}

TEST_CASE("ProcessorWatch: what the helpers take from computing is not idle") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(2);
  machine.Compute(watch, milliseconds(200), 0, 0.6);
  CHECK_FALSE(watch.has_room());
}

TEST_CASE("ProcessorWatch: a rank with processors of its own has them for itself") {
  Machine machine;
  machine.times.processors = 1;
  ProcessorWatch watch = machine.Watch(4);
  machine.Compute(watch, milliseconds(200), 0.4);
  CHECK(watch.has_room());
  machine.Compute(watch, milliseconds(200), 0.2);
  CHECK_FALSE(watch.has_room());
  machine.Compute(watch, milliseconds(200), 0.6);
  CHECK(watch.has_room());
}

TEST_CASE("ProcessorWatch: more ranks than processors have room where all of these are idle") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(64);
  machine.Compute(watch, milliseconds(200), 0.5);
  CHECK_FALSE(watch.has_room());
  machine.Compute(watch, milliseconds(200), 3.5);
  CHECK(watch.has_room());
}

TEST_CASE("ProcessorWatch: between the limits the verdict stands") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(1);
  machine.Compute(watch, milliseconds(200), 0.4);
  CHECK(watch.has_room());
  machine.Compute(watch, milliseconds(200), 0);
  machine.Compute(watch, milliseconds(200), 0.4);
  CHECK_FALSE(watch.has_room());
}

TEST_CASE("ProcessorWatch: pieces add up to a verdict, and too short ones count for nothing") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(1);
  for (int piece = 0; piece < 100; ++piece) machine.Compute(watch, milliseconds(9), 0);
  CHECK(watch.has_room());
  for (int piece = 0; piece < 3; ++piece) machine.Compute(watch, milliseconds(30), 0);
  CHECK(watch.has_room());
  machine.Compute(watch, milliseconds(30), 0);
  CHECK_FALSE(watch.has_room());
}

TEST_CASE("ProcessorWatch: measures now and then only") {
  Machine machine;
  ProcessorWatch watch = machine.Watch(1);
  machine.Compute(watch, milliseconds(50), 0);
  watch.Begin(machine.times.at + ProcessorWatch::kInterval - milliseconds(1));
  CHECK_FALSE(watch.measures());
  watch.Begin(machine.times.at + ProcessorWatch::kInterval);
  CHECK(watch.measures());
  watch.End();
  CHECK_FALSE(watch.measures());
  // Without a measurement there is nothing to end.
  watch.End();
  CHECK(watch.has_room());
}

TEST_CASE("ProcessorWatch: what can't be read leaves room") {
  ProcessorWatch watch(1, [] { return std::nullopt; });
  watch.Begin(Clock::now());
  CHECK_FALSE(watch.measures());
  watch.End();
  CHECK(watch.has_room());
}

}  // namespace
}  // namespace ringd::client
