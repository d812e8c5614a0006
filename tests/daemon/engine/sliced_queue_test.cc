#include "daemon/engine/sliced_queue.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;

// So many entries, each of which is noted by name.
class CountedWork final : public SlicedWork {
 public:
  CountedWork(std::string name, std::size_t entries, std::vector<std::string>* log)
      : name_(std::move(name)), left_(entries), log_(log) {}

  std::size_t Step(std::size_t budget) override {
    const std::size_t entries = std::min(budget, left_);
    left_ -= entries;
    log_->push_back(name_);
    return entries;
  }
  bool done() const override { return left_ == 0; }
  void Abandon(const absl::Status& why) override { log_->push_back(std::string(why.message())); }

 private:
  const std::string name_;
  std::size_t left_;
  std::vector<std::string>* const log_;
};

struct Fixture {
  std::vector<std::string> log;
  std::vector<std::shared_ptr<SlicedWork>> disposed;
  SlicedQueue queue{
      [this](std::shared_ptr<SlicedWork> work) { disposed.push_back(std::move(work)); }};
  Clock::time_point now = Clock::time_point(std::chrono::hours(1));

  void Add(std::uint64_t flow, const std::string& name, std::size_t entries,
           std::chrono::nanoseconds rest = {}) {
    queue.Add({flow, rest}, std::make_shared<CountedWork>(name, entries, &log));
  }
};

TEST_CASE("SlicedQueue: a turn takes no more than its budget, however much waits") {
  Fixture fixture;
  for (std::uint64_t flow = 0; flow < 10; ++flow) fixture.Add(flow, "a", 65'535);
  std::size_t turns = 0;
  std::size_t done = 0;
  while (fixture.queue.NextRun().has_value()) {
    const std::size_t entries = fixture.queue.Run(64, fixture.now);
    REQUIRE(entries <= 64);
    REQUIRE(entries > 0);
    done += entries;
    ++turns;
  }
  CHECK(done == 10 * 65'535);
  CHECK(turns >= done / 64);
  CHECK(fixture.disposed.size() == 10);
}

TEST_CASE("SlicedQueue: a small call does not wait for a large one of another flow") {
  Fixture fixture;
  fixture.Add(1, "large", 65'535);
  fixture.Add(2, "small", 1);
  fixture.queue.Run(64, fixture.now);
  CHECK(fixture.log.at(0) == "large");
  CHECK(fixture.log.at(1) == "small");
  CHECK(fixture.disposed.size() == 1);
}

TEST_CASE("SlicedQueue: within a flow one comes after the other") {
  Fixture fixture;
  fixture.Add(1, "first", 40);
  fixture.Add(1, "second", 1);
  while (fixture.queue.NextRun().has_value()) fixture.queue.Run(8, fixture.now);
  CHECK(fixture.log ==
        std::vector<std::string>{"first", "first", "first", "first", "first", "second"});
}

TEST_CASE("SlicedQueue: a flow that must rest gets its share and no more, whoever asks again") {
  Fixture fixture;
  const Clock::time_point end = fixture.now + std::chrono::seconds(1);
  std::size_t entries = 0;
  fixture.Add(1, "list", 4, microseconds(9));
  while (fixture.now < end) {
    const std::size_t taken = fixture.queue.Run(64, fixture.now);
    entries += taken;
    fixture.now += microseconds(1) * std::max<std::size_t>(taken, 1);
    // The caller is back at once.
    if (!fixture.queue.NextRun().has_value()) fixture.Add(1, "list", 4, microseconds(9));
  }
  // Of a million microseconds.
  CHECK(entries <= 120'000);
  CHECK(entries >= 60'000);
}

TEST_CASE("SlicedQueue: a flow that is run late makes up for it, but for no more than a moment") {
  Fixture fixture;
  const auto late = GENERATE(std::chrono::milliseconds(1), std::chrono::milliseconds(500));
  fixture.Add(1, "trace", 1'000'000, microseconds(9));
  fixture.queue.Run(64, fixture.now);
  // Long enough for 100 entries, and what lies longer ago is forgotten.
  fixture.now += microseconds(9) * SlicedQueue::kQuantum + late;
  std::size_t entries = 0;
  for (int turn = 0; turn < 100; ++turn) entries += fixture.queue.Run(16, fixture.now);
  CHECK(entries >= 100);
  CHECK(entries <= 100 + 2 * SlicedQueue::kQuantum);
}

TEST_CASE("SlicedQueue: while one flow rests the others go on") {
  Fixture fixture;
  fixture.Add(1, "list", 100, microseconds(1000));
  fixture.Add(2, "names", 100);
  CHECK(fixture.queue.Run(1000, fixture.now) == SlicedQueue::kQuantum + 100);
  CHECK(fixture.queue.NextRun() == fixture.now + microseconds(1000) * SlicedQueue::kQuantum);
}

TEST_CASE("SlicedQueue: what is abandoned is told so and handed on to be freed") {
  Fixture fixture;
  fixture.Add(1, "a", 10);
  fixture.Add(1, "b", 10);
  fixture.queue.AbandonAll(absl::UnavailableError("stopping"));
  CHECK(fixture.log == std::vector<std::string>{"stopping", "stopping"});
  CHECK(fixture.disposed.size() == 2);
  CHECK_FALSE(fixture.queue.NextRun().has_value());
  CHECK(fixture.queue.Run(64, fixture.now) == 0);
}

}  // namespace
}  // namespace ringd
