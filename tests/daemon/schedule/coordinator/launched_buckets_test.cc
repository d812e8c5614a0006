// What a Coordinator does with learned buckets of tensors on GPUs: it launches each occurrence when
// all nodes have filled it, in one order for all, and never one that is on its way out of service.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/daemon/schedule/coordinator/two_nodes.h"

namespace ringd {
namespace {

TensorMeta OnGpu(std::int64_t count = 8) {
  TensorMeta meta = Floats(count);
  meta.place = TensorPlace::kDevice;
  return meta;
}

struct TwoOnGpus : Two {
  using Two::Two;

  void AnnounceOnGpus(const std::vector<std::string>& names,
                      const std::vector<std::string>& after_waits = {}) {
    for (const std::string& name : names) {
      now += std::chrono::milliseconds(1);
      const bool waits =
          std::find(after_waits.begin(), after_waits.end(), name) != after_waits.end();
      for (int node = 0; node < 2; ++node) Announce(node, name, OnGpu(), waits);
    }
  }
  Schedule LearnOnGpus(const std::vector<std::string>& names) {
    for (int step = 0; step < 2; ++step) {
      AnnounceOnGpus(names);
      Flush();
    }
    return Third(names[0]);
  }
  Schedule Third(const std::string& first) {
    Announce(0, first, OnGpu());
    const Schedule schedule = FlushOne<Schedule>();
    epoch = schedule.epoch;
    return schedule;
  }
};

TEST_CASE("Coordinator: launches a bucket on GPUs once all nodes have filled it, and again") {
  TwoOnGpus two;
  const Schedule schedule = two.LearnOnGpus({"a", "b"});
  REQUIRE(schedule.buckets.size() == 1);
  const std::uint32_t channel = schedule.buckets[0].channel;
  for (std::uint32_t occurrence = 0; occurrence < 3; ++occurrence) {
    two.Expect(1, Filled{channel, occurrence});
    CHECK(two.Flush().empty());
    two.Expect(0, Filled{channel, occurrence});
    CHECK(two.FlushOne<Launch>() == Launch{channel, occurrence});
  }
  CHECK(two.coordinator.Status().operations_launched == 3);
  // A step of the negotiation's before: two tensors, twice.
  CHECK(two.coordinator.Status().operations_negotiated == 2);
}

TEST_CASE("Coordinator: a bucket on GPUs that is being frozen is launched no more") {
  TwoOnGpus two;
  const std::uint32_t channel = two.LearnOnGpus({"a", "b"}).buckets[0].channel;
  two.Expect(0, Filled{channel, 0});
  two.Expect(1, Break{channel, BreakReason::kMeta, 0, {"b"}});
  CHECK(two.FlushOne<Freeze>() == Freeze{channel});
  // It had filled it after all, before it heard of that.
  two.Expect(1, Filled{channel, 0});
  CHECK(two.Flush().empty());
  two.Expect(0, Frozen{channel, 0});
  two.Expect(1, Frozen{channel, 0});
  CHECK(two.FlushOne<Retire>() == Retire{two.epoch + 1, channel, 0});
}

TEST_CASE("Coordinator: a bucket on GPUs that was only slow comes back whole") {
  TwoOnGpus two;
  const std::uint32_t channel = two.LearnOnGpus({"a", "b"}).buckets[0].channel;
  two.Expect(1, Break{channel, BreakReason::kBlocked, 0, {"b"}});
  two.Flush();
  two.Expect(1, Filled{channel, 0});
  two.Expect(0, Frozen{channel, 0});
  two.Expect(1, Frozen{channel, 0});
  const std::vector<CoordinatorMessage> messages = two.Flush();
  REQUIRE(messages.size() == 2);
  REQUIRE(std::holds_alternative<Schedule>(messages[1]));
  CHECK(std::get<Schedule>(messages[1]).buckets.size() == 1);
}

TEST_CASE("Coordinator: nodes that offer buckets on GPUs out of turn are found") {
  TwoOnGpus two;
  const std::uint32_t channel = two.LearnOnGpus({"a", "b"}).buckets[0].channel;
  two.Expect(0, Filled{channel, 0});
  SECTION("twice") { CHECK_FALSE(two.Send(0, Filled{channel, 0}).ok()); }
  SECTION("one too early") { CHECK_FALSE(two.Send(1, Filled{channel, 1}).ok()); }
  SECTION("of no channel") { CHECK_FALSE(two.Send(1, Filled{channel + 1, 0}).ok()); }
  SECTION("after freezing it") {
    two.Expect(0, Break{channel, BreakReason::kMeta, 0, {"a"}});
    two.Flush();
    two.Expect(1, Frozen{channel, 0});
    CHECK_FALSE(two.Send(1, Filled{channel, 0}).ok());
  }
  SECTION("with another count than what was launched") {
    two.Expect(0, Break{channel, BreakReason::kMeta, 0, {"a"}});
    two.Flush();
    CHECK_FALSE(two.Send(1, Frozen{channel, 1}).ok());
  }
}

TEST_CASE("Coordinator: only buckets on GPUs are offered") {
  Two two;
  const std::uint32_t channel = two.Learn({"a", "b"}).buckets[0].channel;
  CHECK_FALSE(two.Send(0, Filled{channel, 0}).ok());
}

TEST_CASE("Coordinator: tensors on GPUs and others are in buckets of their own") {
  TwoOnGpus two;
  for (int step = 0; step < 2; ++step) {
    two.AnnounceOnGpus({"a", "b"});
    two.AnnounceAll({"c", "d"});
    two.Flush();
  }
  const Schedule schedule = two.Third("a");
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a", "b"});
  CHECK(Names(schedule.buckets[1]) == std::vector<std::string>{"c", "d"});
}

TEST_CASE("Coordinator: buckets on GPUs have a size of their own") {
  CoordinatorConfig config = Two::Config(100);
  config.launched_bucket_bytes = 64;  // two of them
  TwoOnGpus two(config);
  const Schedule schedule = two.LearnOnGpus({"a", "b", "c"});
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("Coordinator: on GPUs one wait in one step is enough to begin a bucket") {
  TwoOnGpus two;
  two.AnnounceOnGpus({"a", "b", "c"});
  two.Flush();
  two.AnnounceOnGpus({"a", "b", "c"}, {"b"});
  two.Flush();
  const Schedule schedule = two.Third("a");
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a"});
  CHECK(Names(schedule.buckets[1]) == std::vector<std::string>{"b", "c"});
}

TEST_CASE("Coordinator: what follows a wait is fused with nothing before it, on GPUs") {
  TwoOnGpus two;
  two.AnnounceOnGpus({"a", "b", "c"}, {"b"});
  const std::vector<CoordinatorMessage> messages = two.Flush();
  REQUIRE(messages.size() == 2);
  CHECK(std::get<Execute>(messages[0]).tensors == std::vector<std::string>{"a"});
  CHECK(std::get<Execute>(messages[1]).tensors == std::vector<std::string>{"b", "c"});
}

}  // namespace
}  // namespace ringd
