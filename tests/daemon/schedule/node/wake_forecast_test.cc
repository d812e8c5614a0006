#include "daemon/schedule/node/wake_forecast.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <vector>

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr milliseconds kStep{100};

// A trainer whose steps are alike, and an engine that keeps every vigil whose time comes between two tensors.
struct Trainer {
  WakeForecast forecast;
  TimePoint now = TimePoint(std::chrono::seconds(1000));
  bool keeps = true;

  // Submits tensors 0, 1, ... at these times of a step, and then waits.
  void Step(const std::vector<nanoseconds>& offsets, bool learned = true) {
    const TimePoint start = now;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      now = start + offsets[i];
      Sleep();
      forecast.OnReady(i, learned, /*follows_wait=*/i == 0, now);
    }
    now = start + kStep;
    Sleep();
  }
  void Sleep() {
    if (keeps && forecast.next().has_value() && forecast.next()->begin <= now) forecast.Keep();
  }
};

const std::vector<nanoseconds> kGradients = {milliseconds(0), milliseconds(10), milliseconds(30)};

// Steps after which vigils are foreseen, if all goes well.
void Learn(Trainer& trainer) {
  for (int i = 0; i <= WakeForecast::kNeeded; ++i) trainer.Step(kGradients);
}

}  // namespace

TEST_CASE("WakeForecast: after some steps it foresees the last tensor, and only that one") {
  Trainer trainer;
  trainer.keeps = false;
  for (int i = 0; i < WakeForecast::kNeeded; ++i) {
    trainer.Step(kGradients);
    CHECK_FALSE(trainer.forecast.next().has_value());
  }
  const TimePoint start = trainer.now;
  trainer.forecast.OnReady(0, true, true, start);
  REQUIRE(trainer.forecast.next().has_value());
  CHECK(trainer.forecast.next()->begin == start + milliseconds(30) - WakeForecast::kLead);
  CHECK(trainer.forecast.next()->end == start + milliseconds(30) + WakeForecast::kTail);
  // A slow step moves it along.
  trainer.forecast.OnReady(1, true, false, start + milliseconds(14));
  REQUIRE(trainer.forecast.next().has_value());
  CHECK(trainer.forecast.next()->begin == start + milliseconds(34) - WakeForecast::kLead);
  trainer.forecast.OnReady(2, true, false, start + milliseconds(34));
  CHECK_FALSE(trainer.forecast.next().has_value());
}

TEST_CASE("WakeForecast: vigils in which the last tensor comes are rewarded") {
  Trainer trainer;
  Learn(trainer);
  for (int i = 0; i < 20; ++i) trainer.Step(kGradients);
  CHECK(trainer.forecast.counters().kept >= 19);
  // The last one's run has not ended yet.
  CHECK(trainer.forecast.counters().rewarded + 1 == trainer.forecast.counters().kept);
}

TEST_CASE("WakeForecast: what is left out was foreseen, but is neither kept nor judged") {
  Trainer trainer;
  trainer.keeps = false;
  for (int i = 0; i < 20; ++i) {
    trainer.forecast.OnReady(0, true, true, trainer.now);
    if (trainer.forecast.next().has_value()) trainer.forecast.LeaveOut();
    CHECK_FALSE(trainer.forecast.next().has_value());
    // The same run: it counts once.
    trainer.forecast.OnReady(1, true, false, trainer.now + milliseconds(10));
    if (trainer.forecast.next().has_value()) trainer.forecast.LeaveOut();
    trainer.forecast.OnReady(2, true, false, trainer.now + milliseconds(90));
    trainer.now += kStep;
  }
  CHECK(trainer.forecast.counters().foreseen == 20 - WakeForecast::kNeeded);
  CHECK(trainer.forecast.counters().kept == 0);
  CHECK(trainer.forecast.counters().rewarded == 0);
}

TEST_CASE("WakeForecast: a vigil is as long as the times stray") {
  Trainer trainer;
  trainer.keeps = false;
  for (int i = 0; i < 40; ++i) {
    const milliseconds late(i % 2);  // to both sides of the mean by half a millisecond
    trainer.Step({milliseconds(0), milliseconds(10), milliseconds(30) + late});
  }
  trainer.forecast.OnReady(0, true, true, trainer.now);
  REQUIRE(trainer.forecast.next().has_value());
  const nanoseconds length = trainer.forecast.next()->end - trainer.forecast.next()->begin;
  CHECK(length > milliseconds(2));
  CHECK(length < milliseconds(5));
}

TEST_CASE("WakeForecast: one long pause hardly changes what is foreseen") {
  Trainer trainer;
  trainer.keeps = false;
  for (int i = 0; i < 20; ++i) trainer.Step(kGradients);
  trainer.Step({milliseconds(0), milliseconds(10), milliseconds(90)});
  trainer.forecast.OnReady(0, true, true, trainer.now);
  REQUIRE(trainer.forecast.next().has_value());
  CHECK(trainer.forecast.next()->end - trainer.forecast.next()->begin < milliseconds(1));
}

TEST_CASE("WakeForecast: follows steps that have become longer") {
  Trainer trainer;
  for (int i = 0; i < 20; ++i) trainer.Step(kGradients);
  for (int i = 0; i < 200; ++i) trainer.Step({milliseconds(0), milliseconds(10), milliseconds(60)});
  const WakeForecast::Counters before = trainer.forecast.counters();
  for (int i = 0; i < 50; ++i) trainer.Step({milliseconds(0), milliseconds(10), milliseconds(60)});
  CHECK(trainer.forecast.counters().rewarded >= before.rewarded + 45);
}

TEST_CASE("WakeForecast: vigils without reward become rarer and rarer") {
  Trainer trainer;
  Learn(trainer);
  // The last tensor's time can't be foreseen: it is either early or late, by more and more.
  int late = 1;
  for (int i = 0; i < 1000; ++i) {
    late = late % 64 + 7;
    trainer.Step({milliseconds(0), milliseconds(1), milliseconds(2 + late)});
  }
  const WakeForecast::Counters& counters = trainer.forecast.counters();
  INFO("kept " << counters.kept << ", rewarded " << counters.rewarded);
  CHECK((counters.kept - counters.rewarded) * 4 < 1000);
}

TEST_CASE("WakeForecast: an idle trainer has no vigils, but for one after its last step") {
  Trainer trainer;
  Learn(trainer);
  trainer.forecast.OnReady(0, true, true, trainer.now);
  trainer.forecast.OnReady(1, true, false, trainer.now + milliseconds(10));
  REQUIRE(trainer.forecast.next().has_value());
  trainer.forecast.Keep();
  CHECK_FALSE(trainer.forecast.next().has_value());
  // It comes back after a minute: that vigil was in vain, and the next runs have none.
  const WakeForecast::Counters before = trainer.forecast.counters();
  trainer.now += std::chrono::minutes(1);
  trainer.forecast.OnReady(2, true, false, trainer.now);
  trainer.now += kStep;
  trainer.Step(kGradients);
  CHECK(trainer.forecast.counters().kept == before.kept);
  CHECK(trainer.forecast.counters().rewarded == before.rewarded);
}

TEST_CASE("WakeForecast: a wait ends a run") {
  Trainer trainer;
  trainer.keeps = false;
  // Gradients 0 and 1, a wait, and a metric 2: that one can't be foreseen from the gradients.
  for (int i = 0; i < 10; ++i) {
    trainer.forecast.OnReady(0, true, true, trainer.now);
    trainer.forecast.OnReady(1, true, false, trainer.now + milliseconds(20));
    trainer.forecast.OnReady(2, true, true, trainer.now + milliseconds(25));
    trainer.now += kStep;
  }
  trainer.forecast.OnReady(0, true, true, trainer.now);
  REQUIRE(trainer.forecast.next().has_value());
  CHECK(trainer.forecast.next()->end == trainer.now + milliseconds(20) + WakeForecast::kTail);
  trainer.forecast.OnReady(1, true, false, trainer.now + milliseconds(20));
  CHECK_FALSE(trainer.forecast.next().has_value());
  trainer.forecast.OnReady(2, true, true, trainer.now + milliseconds(25));
  CHECK_FALSE(trainer.forecast.next().has_value());
}

TEST_CASE("WakeForecast: a tensor that returns ends a run, too") {
  Trainer trainer;
  trainer.keeps = false;
  for (int i = 0; i < 10; ++i) {
    for (std::size_t tensor = 0; tensor < 2; ++tensor) {
      trainer.forecast.OnReady(tensor, true, /*follows_wait=*/false, trainer.now);
      trainer.now += milliseconds(5);
    }
    trainer.now += kStep;
  }
  trainer.forecast.OnReady(0, true, false, trainer.now);
  REQUIRE(trainer.forecast.next().has_value());
  CHECK(trainer.forecast.next()->end == trainer.now + milliseconds(5) + WakeForecast::kTail);
}

TEST_CASE("WakeForecast: without a learned schedule there is no vigil") {
  Trainer trainer;
  for (int i = 0; i < 20; ++i) trainer.Step(kGradients, /*learned=*/false);
  CHECK(trainer.forecast.counters().kept == 0);
}

TEST_CASE("WakeForecast: a number that is used again begins anew") {
  Trainer trainer;
  Learn(trainer);
  trainer.forecast.OnReady(0, true, true, trainer.now);
  trainer.forecast.Forget(0);
  trainer.forecast.Forget(99);
  trainer.forecast.OnReady(1, true, true, trainer.now + milliseconds(1));
  trainer.forecast.LeaveOut();
  trainer.forecast.OnReady(0, true, false, trainer.now + milliseconds(2));
  CHECK_FALSE(trainer.forecast.next().has_value());
}

}  // namespace ringd
