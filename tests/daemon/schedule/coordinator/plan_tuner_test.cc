#include "daemon/schedule/coordinator/plan_tuner.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "tests/daemon/schedule/coordinator/two_nodes.h"

namespace ringd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int64_t kMiBOfFloats = 256 * 1024;

CoordinatorConfig ConfigOf(const LinkModel& link) {
  CoordinatorConfig config = Two::Config(100);
  config.link = link;
  return config;
}

// Eight tensors of 1 MiB that become ready at once, learned with a link so fast that they go
// together.
struct Tuned {
  explicit Tuned(PlanTuner::Options options = {})
      : two(ConfigOf(Fast()), std::make_unique<CostModelPlanner>(64 * kMiB)),
        tuner(options, Fast(), LinkSource::kAssumed, 2) {
    for (int i = 0; i < 8; ++i) names.push_back("w" + std::to_string(i));
    for (int step = 0; step < 2; ++step) {
      for (const std::string& name : names) {
        for (int node = 0; node < 2; ++node) two.Announce(node, name, Floats(kMiBOfFloats));
      }
      two.Flush();
    }
    two.Announce(0, names[0], Floats(kMiBOfFloats));
    learned = two.FlushOne<Schedule>();
    two.now += seconds(100);
  }

  static LinkModel Fast() {
    LinkModel link;
    link.latency = microseconds(10);
    link.bytes_per_second = 1e12;
    return link;
  }
  static NodeMeasurements SlowLink() {
    return {{{64, microseconds(20), 8}, {8 * kMiB, milliseconds(80), 8}}, {}};
  }
  // Tensors one after another, 10 ms apart.
  NodeMeasurements Spread(nanoseconds apart) const {
    NodeMeasurements measured;
    for (std::size_t i = 0; i < names.size(); ++i) {
      measured.readiness.push_back({names[i], static_cast<int>(i) * apart});
    }
    return measured;
  }
  // What the coordinator sends when the nodes freeze all that they are told to, and nothing before.
  Schedule Replanned(std::size_t channels) {
    const std::vector<CoordinatorMessage> freezes = two.Flush();
    REQUIRE(freezes.size() == channels);
    for (const CoordinatorMessage& message : freezes) {
      for (int node = 0; node < 2; ++node) {
        two.Expect(node, Frozen{std::get<Freeze>(message).channel, 5});
      }
    }
    return std::get<Schedule>(two.Flush().back());
  }

  std::vector<std::string> names;
  Two two;
  PlanTuner tuner;
  Schedule learned;
};

}  // namespace

TEST_CASE("PlanTuner: measurements become the coordinator's link model") {
  Tuned tuned;
  CHECK(tuned.tuner.source() == LinkSource::kAssumed);
  CHECK_FALSE(tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now));
  tuned.tuner.OnMeasurements(NodeIndex(0), Tuned::SlowLink());
  CHECK(tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now));
  CHECK(tuned.tuner.source() == LinkSource::kMeasured);
  CHECK(tuned.tuner.samples() == 16);
  // 8 MiB in 80 ms: two nodes send each its bytes once.
  CHECK(tuned.two.coordinator.Status().link.bytes_per_second == Approx(105e6).epsilon(0.02));
  CHECK_FALSE(tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now));
}

TEST_CASE(
    "PlanTuner: a slow link and spread readiness split the bucket, once all nodes have told") {
  Tuned tuned;
  REQUIRE(tuned.learned.buckets.size() == 1);
  NodeMeasurements measured = tuned.Spread(milliseconds(10));
  measured.link = Tuned::SlowLink().link;
  tuned.tuner.OnMeasurements(NodeIndex(0), measured);
  tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now);
  CHECK(tuned.two.Flush().empty());
  tuned.tuner.OnMeasurements(NodeIndex(1), measured);
  tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now);
  const Schedule replanned = tuned.Replanned(1);
  CHECK(replanned.buckets.size() > 2);
  const CoordinatorStatus status = tuned.two.coordinator.Status();
  CHECK(status.origin == PlanOrigin::kReplanned);
  CHECK(status.first_origin == PlanOrigin::kLearned);
  CHECK(status.replans == 1);
  CHECK(status.plan.learned < status.plan.fixed_64mib);
  CHECK(status.plan.compute == milliseconds(70));
}

TEST_CASE("PlanTuner: of the nodes the slowest decides when a tensor is ready") {
  Tuned tuned;
  tuned.tuner.OnMeasurements(NodeIndex(0), tuned.Spread(milliseconds(10)));
  tuned.tuner.OnMeasurements(NodeIndex(1), tuned.Spread(milliseconds(20)));
  tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now);
  CHECK(tuned.two.coordinator.Status().plan.compute == milliseconds(140));
}

TEST_CASE("PlanTuner: no change without gain, and none where the plan is pinned") {
  PlanTuner::Options options;
  options.may_replan = GENERATE(true, false);
  Tuned tuned(options);
  NodeMeasurements measured = Tuned::SlowLink();
  if (!options.may_replan) measured.readiness = tuned.Spread(milliseconds(10)).readiness;
  for (int node = 0; node < 2; ++node) tuned.tuner.OnMeasurements(NodeIndex(node), measured);
  CHECK(tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now));
  CHECK(tuned.two.Flush().empty());
}

TEST_CASE("PlanTuner: plans change ever more seldom, however much the measurements do") {
  Tuned tuned;
  for (int node = 0; node < 2; ++node) {
    tuned.tuner.OnMeasurements(NodeIndex(node), Tuned::SlowLink());
  }
  tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now);
  std::vector<TimePoint> changes;
  std::size_t channels = 1;
  for (int i = 0; i < 4000; ++i) {
    tuned.two.now += milliseconds(100);
    // A thin line and tensors one by one, then a far one and tensors all at once, and back.
    NodeMeasurements measured = tuned.Spread(i % 2 == 0 ? milliseconds(20) : milliseconds(0));
    measured.link = Tuned::SlowLink().link;
    if (i % 2 != 0) measured.link = {{64, milliseconds(40), 8}, {8 * kMiB, milliseconds(41), 8}};
    for (int node = 0; node < 2; ++node) tuned.tuner.OnMeasurements(NodeIndex(node), measured);
    tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now);
    if (tuned.two.coordinator.Status().replans == changes.size()) continue;
    changes.push_back(tuned.two.now);
    channels = tuned.Replanned(channels).buckets.size();
  }
  REQUIRE(changes.size() >= 6);
  CHECK(changes.size() <= 14);
  for (std::size_t i = 1; i < changes.size(); ++i) {
    const nanoseconds least = std::min<nanoseconds>(seconds(1) * (1 << (i - 1)), seconds(60));
    CHECK(changes[i] - changes[i - 1] >= least);
  }
}

TEST_CASE("PlanTuner: a search that found nothing is repeated ever more seldom") {
  Tuned tuned;
  const auto tune = [&tuned](const NodeMeasurements& measured) {
    for (int node = 0; node < 2; ++node) tuned.tuner.OnMeasurements(NodeIndex(node), measured);
    tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now);
    return tuned.two.coordinator.Status().replans;
  };
  NodeMeasurements worse = tuned.Spread(milliseconds(10));
  worse.link = Tuned::SlowLink().link;
  const int fruitless = GENERATE(1, 20);
  nanoseconds pause(0);
  for (int i = 0; i < fruitless; ++i) {
    tuned.two.now += pause;
    CHECK(tune(Tuned::SlowLink()) == 0);
    pause = std::min<nanoseconds>(milliseconds(250) * (1 << std::min(i, 6)), seconds(8));
  }
  tuned.two.now += pause - milliseconds(1);
  CHECK(tune(worse) == 0);
  tuned.two.now += milliseconds(1);
  CHECK(tune(worse) == 1);
}

TEST_CASE("PlanTuner: tensors that nobody schedules do no harm") {
  Tuned tuned;
  NodeMeasurements measured;
  measured.readiness.push_back({"unheard of", milliseconds(3)});
  tuned.tuner.OnMeasurements(NodeIndex(1), measured);
  CHECK(tuned.tuner.Tune(tuned.two.coordinator, tuned.two.now));
  CHECK(tuned.tuner.source() == LinkSource::kAssumed);
  CHECK(tuned.two.Flush().empty());
}

}  // namespace ringd
