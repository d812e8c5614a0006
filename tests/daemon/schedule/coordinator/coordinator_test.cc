#include "daemon/schedule/coordinator/coordinator.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "tests/daemon/schedule/coordinator/two_nodes.h"

namespace ringd {

using std::chrono::milliseconds;

TEST_CASE("Coordinator: executes what all nodes have announced, fused per batch") {
  Two two;
  two.Announce(0, "a");
  two.Announce(0, "b");
  CHECK(two.Flush().empty());
  two.Announce(1, "b");
  two.Announce(1, "a");
  CHECK(two.FlushOne<Execute>() == Execute{0, {"b", "a"}});
  two.AnnounceAll({"c"});
  CHECK(two.FlushOne<Execute>().sequence == 1);
}

TEST_CASE("Coordinator: nodes that disagree get one error that names both") {
  Two two;
  two.Announce(1, "x", Floats(3));
  two.Announce(0, "x", Floats(4));
  const FailTensor fail = two.FlushOne<FailTensor>();
  CHECK(fail.tensor == "x");
  CHECK(
      fail.error ==
      "tensor 'x': rank 0 on node-a submitted float32 [4], rank 2 on node-b submitted float32 [3]");
  two.AnnounceAll({"x"});
  CHECK(two.FlushOne<Execute>() == Execute{0, {"x"}});
}

TEST_CASE("Coordinator: ranks of one node that disagree fail the tensor on all") {
  Two two;
  two.Expect(0, Ready{0, {{"x", {{Rank(0), Floats(3)}, {Rank(1), Floats(4)}}, false}}});
  CHECK(two.Flush().empty());
  two.Announce(1, "x", Floats(3));
  CHECK(two.FlushOne<FailTensor>().error.find("rank 1 on node-a") != std::string::npos);
}

TEST_CASE("Coordinator: tells who is missing, oldest first") {
  Two two;
  two.Announce(1, "late");
  two.now += milliseconds(5);
  two.Announce(0, "later");
  CHECK(two.coordinator.Stalled(TimePoint()).empty());
  const std::vector<StalledTensor> stalled = two.coordinator.Stalled(two.now + milliseconds(1));
  REQUIRE(stalled.size() == 2);
  CHECK(stalled[0].name == "late");
  CHECK(stalled[0].ready == std::vector<NodeIndex>{NodeIndex(1)});
  CHECK(stalled[0].absent == std::vector<NodeIndex>{NodeIndex(0)});
}

TEST_CASE("Coordinator: two alike steps are learned when the third begins") {
  Two two;
  const Schedule schedule = two.Learn({"a", "b", "c"});
  CHECK(schedule.epoch == 1);
  REQUIRE(schedule.buckets.size() == 1);
  CHECK(schedule.buckets[0].channel == 1);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a", "b", "c"});
  CHECK(schedule.buckets[0].tensors[0].meta == Floats(8));
}

TEST_CASE("Coordinator: announcements from before the schedule are void, later ones are errors") {
  Two two;
  two.Learn({"a", "b"});
  two.epoch = 0;
  two.Announce(0, "b");
  two.Announce(1, "a");
  two.Announce(1, "b");
  CHECK(two.Flush().empty());
  CHECK_FALSE(two.Send(0, Ready{1, {{"a", {{Rank(0), Floats(8)}}, false}}}).ok());
}

TEST_CASE("Coordinator: a tensor with a new shape each time is not learned, the others are") {
  Two two;
  for (int step = 0; step < 6; ++step) {
    two.AnnounceAll({"a"});
    for (int node = 0; node < 2; ++node) two.Announce(node, "x", Floats(step + 1));
    for (const CoordinatorMessage& message : two.Flush()) {
      if (const auto* schedule = std::get_if<Schedule>(&message)) {
        REQUIRE(schedule->buckets.size() == 1);
        CHECK(Names(schedule->buckets[0]) == std::vector<std::string>{"a"});
        return;
      }
    }
  }
  FAIL("nothing was learned");
}

TEST_CASE("Coordinator: what follows a wait begins a bucket of its own") {
  Two two;
  for (int step = 0; step < 2; ++step) {
    two.AnnounceAll({"a", "b"});
    for (int node = 0; node < 2; ++node) two.Announce(node, "c", Floats(8), node == 1);
    two.Flush();
  }
  two.Announce(0, "a");
  const Schedule schedule = two.FlushOne<Schedule>();
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a", "b"});
  CHECK(Names(schedule.buckets[1]) == std::vector<std::string>{"c"});
}

TEST_CASE("Coordinator: barriers are learned, each in a bucket of its own") {
  Two two;
  TensorMeta barrier;
  barrier.kind = CollectiveKind::kBarrier;
  const auto announce = [&] {
    for (int node = 0; node < 2; ++node) {
      for (const char* name : {"first", "second"}) two.Announce(node, name, barrier);
    }
  };
  for (int step = 0; step < 2; ++step) {
    announce();
    for (const CoordinatorMessage& message : two.Flush()) {
      CHECK(std::holds_alternative<Execute>(message));
    }
  }
  two.Announce(0, "first", barrier);
  const Schedule schedule = two.FlushOne<Schedule>();
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"first"});
  CHECK(Names(schedule.buckets[1]) == std::vector<std::string>{"second"});
}

TEST_CASE("Coordinator: broadcasts and empty tensors are never learned") {
  Two two;
  TensorMeta broadcast = Floats(8);
  broadcast.kind = CollectiveKind::kBroadcast;
  for (int step = 0; step < 10; ++step) {
    for (int node = 0; node < 2; ++node) {
      two.Announce(node, "nothing", Floats(0));
      two.Announce(node, "weights", broadcast);
    }
    const std::vector<CoordinatorMessage> messages = two.Flush();
    REQUIRE(messages.size() == 2);
    CHECK(std::holds_alternative<Execute>(messages[0]));
    CHECK(std::holds_alternative<Execute>(messages[1]));
  }
}

TEST_CASE("Coordinator: a departure ends at the least occurrence that a node has started") {
  Two two;
  two.Learn({"a", "b"});
  two.Expect(1, Break{1, BreakReason::kMeta, 4, {"b"}});
  CHECK(two.FlushOne<Freeze>().channel == 1);
  two.Expect(0, Break{1, BreakReason::kMeta, 5, {"b"}});  // another node, a moment later
  CHECK(two.Flush().empty());
  two.Expect(0, Frozen{1, 5});
  CHECK(two.Flush().empty());
  two.Expect(1, Frozen{1, 4});
  CHECK(two.FlushOne<Retire>() == Retire{2, 1, 4});
  two.epoch = 2;
  two.AnnounceAll({"a", "b"});
  CHECK(two.FlushOne<Execute>() == Execute{2, {"a", "b"}});
}

TEST_CASE(
    "Coordinator: a tensor that changed must be stable for longer before it is learned again") {
  Two two;
  two.Learn({"a", "b"});
  two.Expect(0, Break{1, BreakReason::kMeta, 0, {"b"}});
  two.Flush();
  for (int node = 0; node < 2; ++node) two.Expect(node, Frozen{1, 0});
  two.epoch = two.FlushOne<Retire>().epoch;
  std::vector<std::vector<std::string>> learned;
  for (int step = 0; step < 6; ++step) {
    for (const char* name : {"a", "b"}) {
      if (two.coordinator.Status().tensors_scheduled == 0 || learned.back()[0] != name) {
        for (int node = 0; node < 2; ++node) two.Announce(node, name);
      }
      for (const CoordinatorMessage& message : two.Flush()) {
        if (const auto* schedule = std::get_if<Schedule>(&message)) {
          two.epoch = schedule->epoch;
          for (const ScheduledBucket& bucket : schedule->buckets) learned.push_back(Names(bucket));
        }
      }
    }
    if (learned.size() == 2) break;
  }
  CHECK(learned == std::vector<std::vector<std::string>>{{"a"}, {"b"}});
}

TEST_CASE("Coordinator: a bucket of which a part does not come is split at once") {
  Two two;
  two.Learn({"a", "b", "c"});
  two.Expect(0, Break{1, BreakReason::kBlocked, 7, {"b"}});
  two.FlushOne<Freeze>();
  two.Expect(0, Frozen{1, 7});
  two.Expect(1, Frozen{1, 8});
  const std::vector<CoordinatorMessage> messages = two.Flush();
  REQUIRE(messages.size() == 2);
  CHECK(std::get<Retire>(messages[0]) == Retire{2, 1, 7});
  const Schedule& schedule = std::get<Schedule>(messages[1]);
  CHECK(schedule.epoch == 3);
  REQUIRE(schedule.buckets.size() == 2);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a", "c"});
  CHECK(Names(schedule.buckets[1]) == std::vector<std::string>{"b"});
  SECTION("and stays so in a new plan") {
    two.coordinator.Replan();
    CHECK(two.Flush().size() == 2);
    for (int node = 0; node < 2; ++node) {
      for (std::uint32_t channel : {2u, 3u}) two.Expect(node, Frozen{channel, 1});
    }
    const std::vector<CoordinatorMessage> replanned = two.Flush();
    REQUIRE(replanned.size() == 3);
    CHECK(std::get<Schedule>(replanned[2]).buckets.size() == 2);
  }
}

TEST_CASE("Coordinator: a bucket that was only slow comes back whole, with more patience") {
  Two two;
  two.Learn({"a", "b"});
  two.Expect(0, Break{1, BreakReason::kLate, 7, {"b"}});
  two.FlushOne<Freeze>();
  for (int node = 0; node < 2; ++node) two.Expect(node, Frozen{1, 8});
  const std::vector<CoordinatorMessage> messages = two.Flush();
  REQUIRE(messages.size() == 2);
  const Schedule& schedule = std::get<Schedule>(messages[1]);
  REQUIRE(schedule.buckets.size() == 1);
  CHECK(schedule.buckets[0].tensors.size() == 2);
  CHECK(schedule.buckets[0].expected_fill >= milliseconds(40));
}

TEST_CASE("Coordinator: a new plan joins only tensors that were executed equally often") {
  Two two;
  two.Learn({"a", "b", "c"});
  // Split, so that there are two buckets; guesses are taken back by the new plan.
  two.Expect(0, Break{1, BreakReason::kLate, 0, {"c"}});
  two.Flush();
  for (int node = 0; node < 2; ++node) two.Expect(node, Frozen{1, 0});
  CHECK(two.Flush().size() == 2);
  two.coordinator.Replan();
  CHECK(two.Flush().size() == 2);
  const std::uint32_t behind = GENERATE(0u, 1u);
  for (int node = 0; node < 2; ++node) {
    two.Expect(node, Frozen{2, 5});
    two.Expect(node, Frozen{3, 5 - behind});
  }
  const std::vector<CoordinatorMessage> messages = two.Flush();
  REQUIRE(messages.size() == 3);
  CHECK(std::get<Schedule>(messages[2]).buckets.size() == 1 + behind);
}

TEST_CASE("Coordinator: makes no more buckets than it may") {
  Two two(1);
  for (int step = 0; step < 2; ++step) {
    for (const char* name : {"a", "b", "c"}) {
      for (int node = 0; node < 2; ++node) two.Announce(node, name, Floats(8), true);
    }
    two.Flush();
  }
  two.Announce(0, "a");
  const Schedule schedule = two.FlushOne<Schedule>();
  REQUIRE(schedule.buckets.size() == 1);
  CHECK(Names(schedule.buckets[0]) == std::vector<std::string>{"a"});
}

TEST_CASE("Coordinator: nodes that break the protocol are found") {
  Two two;
  const ReadyTensor tensor{"a", {{Rank(0), Floats(8)}}, false};
  CHECK_FALSE(two.coordinator.OnMessage(NodeIndex(2), Ready{0, {tensor}}, two.now).ok());
  CHECK_FALSE(two.Send(0, Ready{9, {tensor}}).ok());
  CHECK_FALSE(two.Send(0, Ready{0, {{"b", {}, false}}}).ok());
  CHECK_FALSE(two.Send(0, Frozen{1, 0}).ok());
  CHECK_FALSE(two.Send(0, Break{1, BreakReason::kMeta, 0, {}}).ok());
  two.Expect(0, Ready{0, {tensor}});
  CHECK_FALSE(two.Send(0, Ready{0, {tensor}}).ok());
}

TEST_CASE("Coordinator: a break of a channel that is gone is no error") {
  Two two;
  two.Learn({"a"});
  two.Expect(0, Break{1, BreakReason::kWithdrawn, 0, {"a"}});
  two.Flush();
  for (int node = 0; node < 2; ++node) two.Expect(node, Frozen{1, 0});
  two.FlushOne<Retire>();
  two.Expect(1, Break{1, BreakReason::kWithdrawn, 0, {"a"}});
  CHECK(two.Flush().empty());
}

TEST_CASE("Coordinator: tells its plan and counts its messages") {
  Two two;
  two.Learn({"a", "b"});
  const CoordinatorStatus status = two.coordinator.Status();
  CHECK(status.epoch == 1);
  CHECK(status.messages_received == 9);
  CHECK(status.messages_sent == 6);  // two operations and a schedule, to two nodes
  CHECK(status.operations_negotiated == 2);
  CHECK(status.tensors_scheduled == 2);
  REQUIRE(status.buckets.size() == 1);
  CHECK(status.buckets[0].bytes == 64);
  CHECK(status.plan.tensors == 2);
  CHECK(status.plan.bytes == 64);
  CHECK(status.plan.learned == status.plan.fixed_64mib);
  CHECK(status.plan.compute == milliseconds(1));
  CHECK(status.plan.learned > status.plan.compute);
  CHECK(status.plan.per_tensor > status.plan.compute);
}

}  // namespace ringd
