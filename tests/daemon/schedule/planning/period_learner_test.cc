#include "daemon/schedule/planning/period_learner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

namespace ringd {
namespace {

using std::chrono::milliseconds;

TensorMeta Floats(std::int64_t count) {
  TensorMeta meta;
  meta.shape = {count};
  return meta;
}

struct Fixture {
  PeriodLearner learner{2};
  TimePoint now;

  // One step; what was learned at its beginning.
  std::vector<std::string> Step(const std::vector<std::string>& names) {
    std::vector<std::string> learned;
    for (const std::string& name : names) {
      if (learner.OnAnnounced(name)) {
        for (const LearnedTensor& tensor : learner.TakeStable()) learned.push_back(tensor.name);
      }
      now += milliseconds(1);
      learner.OnExecuted(name, Floats(1), false, now);
    }
    return learned;
  }
};

using Learned = std::vector<std::string>;

}  // namespace

TEST_CASE("PeriodLearner: two alike periods make tensors stable, in the order of their coming") {
  Fixture fixture;
  CHECK(fixture.Step({"a", "b", "c"}).empty());
  CHECK(fixture.Step({"a", "b", "c"}).empty());
  CHECK(fixture.Step({"a", "b", "c"}) == Learned{"a", "b", "c"});
}

TEST_CASE("PeriodLearner: knows when in the period a tensor comes") {
  Fixture fixture;
  fixture.Step({"a", "b", "c"});
  fixture.Step({"a", "b", "c"});
  REQUIRE(fixture.learner.OnAnnounced("a"));
  const std::vector<LearnedTensor> taken = fixture.learner.TakeStable();
  REQUIRE(taken.size() == 3);
  CHECK(taken[0].ready_offset == milliseconds(0));
  CHECK(taken[2].ready_offset == milliseconds(2));
  CHECK(taken[0].learned_with == taken[2].learned_with);
}

TEST_CASE("PeriodLearner: waits a little for tensors that may be stable soon") {
  Fixture fixture;
  fixture.Step({"a"});
  fixture.Step({"a", "b"});
  CHECK(fixture.Step({"a", "b"}).empty());
  CHECK(fixture.Step({"a", "b"}) == Learned{"a", "b"});
}

TEST_CASE("PeriodLearner: does not wait for ever if every step brings a new name") {
  Fixture fixture;
  Learned learned;
  int steps = 0;
  while (learned.empty() && steps < 20) {
    learned = fixture.Step({"a", "noname." + std::to_string(steps++)});
  }
  CHECK(learned == Learned{"a"});
  CHECK(steps <= 6);
}

TEST_CASE("PeriodLearner: two models in turn are learned together") {
  Fixture fixture;
  Learned learned;
  for (int step = 0; step < 3 && learned.empty(); ++step) {
    learned = fixture.Step({"d1", "d2"});
    if (learned.empty()) learned = fixture.Step({"g1"});
  }
  CHECK(learned == Learned{"d1", "d2", "g1"});
}

TEST_CASE("PeriodLearner: a tensor that is still under way is not taken with the others") {
  Fixture fixture;
  fixture.Step({"a", "b", "late"});
  fixture.Step({"a", "b", "late"});
  fixture.Step({"x"});  // begins no new period, so "a" is executed for the third time below
  Learned learned;
  for (int step = 0; step < 6 && learned.empty(); ++step) learned = fixture.Step({"a", "b"});
  CHECK(std::find(learned.begin(), learned.end(), "late") == learned.end());
}

TEST_CASE("PeriodLearner: a penalised tensor must be stable for twice as long") {
  Fixture fixture;
  fixture.learner.Penalise("b");
  fixture.Step({"a", "b"});
  fixture.Step({"a", "b"});
  CHECK(fixture.Step({"a", "b"}) == Learned{"a"});
  CHECK(fixture.Step({"b"}).empty());
  CHECK(fixture.Step({"b"}) == Learned{"b"});
}

}  // namespace ringd
