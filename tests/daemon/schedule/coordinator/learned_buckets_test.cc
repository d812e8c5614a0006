// What a NodeScheduler does with the buckets of a learned schedule: starts them, gives them up,
// forgets them.
#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "daemon/schedule/node/ready_offset.h"
#include "tests/daemon/schedule/node/scheduling_node.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

TEST_CASE("NodeScheduler: a learned bucket starts when full, each time, without a message") {
  SchedulingNode node;
  node.scheduler.Intern("a");
  node.scheduler.Intern("b");
  node.Receive(Bucket(1, {"a", "b"}));
  TensorList first_list;
  for (std::uint32_t occurrence = 0; occurrence < 3; ++occurrence) {
    node.Ready("b");
    CHECK(node.Take().empty());
    node.Ready("a");
    const auto start = node.TakeOne<StartOperation>();
    CHECK(start.operation == OperationId{1, occurrence});
    if (occurrence == 0) first_list = start.tensors;
    CHECK(start.tensors == first_list);
    node.Finish(start.operation);
  }
}

TEST_CASE(
    "NodeScheduler: once one tensor's readiness is news, that of all is told, of the same steps") {
  SchedulingNode node;
  node.scheduler.Intern("a");
  node.scheduler.Intern("b");
  node.Receive(Bucket(1, {"a", "b"}));
  std::uint32_t occurrence = 0;
  const auto steps = [&](int count, milliseconds gap) {
    for (int i = 0; i < count; ++i) {
      node.now += std::chrono::seconds(1);
      node.Ready("a");
      node.now += gap;
      node.Ready("b");
      node.Take();
      node.Finish({1, occurrence++});
    }
  };
  steps(ReadyOffset::kNeeded - 1, milliseconds(5));
  CHECK(node.scheduler.TakeReadiness().empty());
  steps(1, milliseconds(5));
  CHECK(node.scheduler.TakeReadiness().size() == 2);
  steps(1, milliseconds(5));
  CHECK(node.scheduler.TakeReadiness().empty());
  steps(20, milliseconds(9));
  const std::vector<TensorReadiness> readiness = node.scheduler.TakeReadiness();
  REQUIRE(readiness.size() == 2);
  CHECK(readiness[0].offset == milliseconds(0));
  CHECK(readiness[1].offset > milliseconds(8));
}

TEST_CASE("NodeScheduler: the schedule takes over what was announced") {
  SchedulingNode node;
  node.Ready("a");
  node.Ready("b");
  node.Take();
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.TakeOne<StartOperation>().operation == OperationId{1, 0});
}

TEST_CASE("NodeScheduler: a tensor that is running when it is scheduled joins with its next turn") {
  SchedulingNode node;
  node.Ready("a");
  node.Ready("b");
  node.Take();
  node.Receive(Execute{0, {"a"}});
  node.TakeOne<StartOperation>();
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.Take().empty());
  node.Finish({0, 0});
  node.Ready("a");
  CHECK(node.TakeOne<StartOperation>().operation == OperationId{1, 0});
}

TEST_CASE(
    "NodeScheduler: what became ready before the schedule and is sent after it is not announced") {
  SchedulingNode node;
  node.Ready("a");
  node.scheduler.Intern("b");
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.Take().empty());
  CHECK(node.scheduler.Lookup("a").state == TensorState::kHeld);
}

TEST_CASE("NodeScheduler: another shape breaks the bucket, and after it both are negotiated") {
  SchedulingNode node;
  node.scheduler.Intern("a");
  node.scheduler.Intern("b");
  node.Receive(Bucket(1, {"a", "b"}));
  node.Ready("a");
  node.Ready("b", Floats(9));
  CHECK(node.TakeMessage<Break>() == Break{1, BreakReason::kMeta, 0, {"b"}});
  node.Receive(Freeze{1});
  CHECK(node.TakeMessage<Frozen>() == Frozen{1, 0});
  node.Receive(Retire{2, 1, 0});
  const std::vector<Action> actions = node.Take();
  REQUIRE(actions.size() == 2);
  CHECK(std::get<ChannelRetired>(actions[0]).final_count == 0);
  const auto ready = std::get<ringd::Ready>(std::get<SendToCoordinator>(actions[1]).message);
  CHECK(ready.epoch == 2);
  CHECK(ready.tensors.size() == 2);
}

TEST_CASE("NodeScheduler: an occurrence that others never started is taken back") {
  SchedulingNode node;
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a"}));
  node.TakeOne<StartOperation>();
  node.Receive(Freeze{1});
  CHECK(node.TakeMessage<Frozen>() == Frozen{1, 1});
  node.Receive(Retire{2, 1, 0});
  const std::vector<Action> actions = node.Take();
  REQUIRE(actions.size() == 3);
  CHECK(std::get<CancelOperation>(actions[0]).operation == OperationId{1, 0});
  CHECK(std::get<ChannelRetired>(actions[1]).channel == 1);
  CHECK(std::holds_alternative<SendToCoordinator>(actions[2]));
}

TEST_CASE("NodeScheduler: an occurrence that all started completes after its channel is retired") {
  SchedulingNode node;
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a"}));
  node.TakeOne<StartOperation>();
  node.Receive(Freeze{1});
  node.Take();
  node.Receive(Retire{2, 1, 1});
  CHECK(node.TakeOne<ChannelRetired>().final_count == 1);
  node.Finish({1, 0});
  node.Ready("a");
  CHECK(node.TakeMessage<ringd::Ready>().epoch == 2);
}

TEST_CASE("NodeScheduler: a frozen bucket does not start") {
  SchedulingNode node;
  node.scheduler.Intern("a");
  node.Receive(Bucket(1, {"a"}));
  node.Receive(Freeze{1});
  node.Take();
  node.Ready("a");
  CHECK(node.Take().empty());
}

TEST_CASE("NodeScheduler: blocked ranks break a partly filled bucket after the patience") {
  SchedulingNode node;
  node.scheduler.Intern("b");
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a", "b"}));
  const FixedView blocked(true);
  REQUIRE(node.scheduler.NextTick().has_value());
  CHECK(*node.scheduler.NextTick() <= node.now + milliseconds(20));
  node.scheduler.OnTick(node.now, blocked);
  CHECK(node.Take().empty());
  for (int i = 0; i < 3; ++i) {
    node.now += milliseconds(6);
    node.scheduler.OnTick(node.now, blocked);
    CHECK(node.Take().empty());
  }
  SECTION("that has passed") {
    node.now += milliseconds(6);
    node.scheduler.OnTick(node.now, blocked);
    CHECK(node.TakeMessage<Break>() == Break{1, BreakReason::kBlocked, 0, {"b"}});
    CHECK_FALSE(node.scheduler.NextTick().has_value());
    node.now += milliseconds(100);
    node.scheduler.OnTick(node.now, blocked);
    CHECK(node.Take().empty());
  }
  SECTION("but not if they were not blocked in between") {
    node.scheduler.OnTick(node.now += milliseconds(6), FixedView(false));
    node.scheduler.OnTick(node.now += milliseconds(6), blocked);
    CHECK(node.Take().empty());
  }
  SECTION("but not if the bucket fills up") {
    node.Ready("b");
    CHECK(node.TakeOne<StartOperation>().operation == OperationId{1, 0});
    CHECK_FALSE(node.scheduler.NextTick().has_value());
  }
}

TEST_CASE("NodeScheduler: ranks that are not blocked have two seconds") {
  SchedulingNode node;
  node.scheduler.Intern("b");
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a", "b"}));
  const FixedView computing(false);
  node.scheduler.OnTick(node.now += milliseconds(1990), computing);
  CHECK(node.Take().empty());
  node.scheduler.OnTick(node.now += milliseconds(11), computing);
  CHECK(node.TakeMessage<Break>().reason == BreakReason::kLate);
}

TEST_CASE("NodeScheduler: a bucket that usually fills slowly is given more time") {
  SchedulingNode node;
  node.scheduler.Intern("a");
  node.scheduler.Intern("b");
  node.Receive(Bucket(1, {"a", "b"}));
  node.Ready("a");
  node.now += milliseconds(500);
  node.Ready("b");
  node.Finish(node.TakeOne<StartOperation>().operation);
  node.Ready("a");
  const FixedView blocked(true);
  for (int i = 0; i < 140; ++i) node.scheduler.OnTick(node.now += milliseconds(10), blocked);
  CHECK(node.Take().empty());
  for (int i = 0; i < 20; ++i) node.scheduler.OnTick(node.now += milliseconds(10), blocked);
  CHECK(node.TakeMessage<Break>().reason == BreakReason::kBlocked);
}

TEST_CASE("NodeScheduler: a tensor that nobody here knows is withdrawn from a new bucket") {
  SchedulingNode node;
  node.scheduler.Intern("a");
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.TakeMessage<Break>() == Break{1, BreakReason::kWithdrawn, 0, {"b"}});
}

TEST_CASE("NodeScheduler: a bucket that has been out of use for long is withdrawn, no other one") {
  SchedulingNode node;
  for (const char* name : {"a", "b", "c"}) node.scheduler.Intern(name);
  node.Receive(Schedule{1, {Bucket(1, {"a", "b"}), Bucket(2, {"c"})}});
  node.Ready("a");
  node.Ready("b");
  node.Take();
  node.Finish({1, 0});
  std::vector<Break> breaks;
  std::uint32_t occurrence = 0;
  const auto steps = [&](int count, milliseconds apart) {
    for (int i = 0; i < count; ++i) {
      node.now += apart;
      node.Ready("c");
      for (const Action& action : node.Take()) {
        const auto* const sent = std::get_if<SendToCoordinator>(&action);
        if (sent != nullptr) breaks.push_back(std::get<Break>(sent->message));
      }
      node.Finish({2, occurrence++});
    }
  };
  SECTION("not for many quick steps") {
    steps(5'000, milliseconds(10));
    CHECK(breaks.empty());
  }
  SECTION("not for a few slow ones") {
    steps(900, std::chrono::minutes(1));
    CHECK(breaks.empty());
  }
  SECTION("but for many, and long") {
    steps(1'300, std::chrono::seconds(1));
    CHECK(breaks == std::vector{Break{1, BreakReason::kWithdrawn, 1, {"a", "b"}}});
  }
  SECTION("unless it is used again") {
    for (int i = 0; i < 3; ++i) {
      steps(900, std::chrono::seconds(1));
      node.Ready("a");
      node.Ready("b");
      node.Take();
      node.Finish({1, 1 + static_cast<std::uint32_t>(i)});
    }
    CHECK(breaks.empty());
  }
}

TEST_CASE("NodeScheduler: the handle of a tensor that only a bucket named is used again after it") {
  SchedulingNode node;
  const TensorHandle a = node.scheduler.Intern("a");
  node.Receive(Bucket(1, {"a", "b"}));
  node.Receive(Freeze{1});
  node.Receive(Retire{2, 1, 0});
  const TensorHandle c = node.scheduler.Intern("c");
  CHECK(c.value() == a.value() + 1);
  CHECK(node.scheduler.NameOf(c) == "c");
  CHECK(node.scheduler.Lookup("b").state == TensorState::kIdle);
}

}  // namespace
}  // namespace ringd
