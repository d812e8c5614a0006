#include "daemon/schedule/node/node_scheduler.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "tests/daemon/schedule/node/scheduling_node.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

TEST_CASE("NodeScheduler: announces in one message what became ready in one batch") {
  SchedulingNode node;
  node.Ready("a");
  node.Ready("b", Floats(3));
  const ringd::Ready ready = node.TakeMessage<ringd::Ready>();
  CHECK(ready.epoch == 0);
  REQUIRE(ready.tensors.size() == 2);
  CHECK(ready.tensors[1].name == "b");
  CHECK(ready.tensors[1].reports == std::vector<RankMeta>{{Rank(4), Floats(3)}});
  CHECK(node.Take().empty());
}

TEST_CASE("NodeScheduler: starts what the coordinator says, in its order") {
  SchedulingNode node;
  node.Ready("a");
  node.Ready("b");
  node.Take();
  node.Receive(Execute{0, {"b", "a"}});
  const auto start = node.TakeOne<StartOperation>();
  CHECK(start.operation == OperationId{0, 0});
  CHECK(node.scheduler.NameOf((*start.tensors)[0]) == "b");
  node.Finish(start.operation);
  node.Ready("a");
  CHECK(node.TakeMessage<ringd::Ready>().tensors.size() == 1);
}

TEST_CASE("NodeScheduler: a mismatch ends as the coordinator words it") {
  SchedulingNode node;
  const TensorHandle x = node.scheduler.Intern("x");
  node.scheduler.OnLocalMismatch(x, {{Rank(4), Floats(1)}, {Rank(5), Floats(2)}}, node.now);
  CHECK(node.TakeMessage<ringd::Ready>().tensors[0].reports.size() == 2);
  node.Receive(FailTensor{"x", "tensor 'x': no"});
  const auto failed = node.TakeOne<TensorFailed>();
  CHECK(failed.tensor == x);
  CHECK(failed.status == absl::InvalidArgumentError("tensor 'x': no"));
  node.Ready("x");
  CHECK(node.TakeMessage<ringd::Ready>().tensors.size() == 1);
}

TEST_CASE("NodeScheduler: messages that break the protocol are errors") {
  SchedulingNode node;
  node.Ready("a");
  node.Take();
  const auto fails = [&](const CoordinatorMessage& message) {
    return !node.scheduler.OnMessage(message, node.now).ok();
  };
  SECTION("a sequence that skips") { CHECK(fails(Execute{1, {"a"}})); }
  SECTION("a tensor that is not ready") { CHECK(fails(Execute{0, {"b"}})); }
  SECTION("a tensor named twice") { CHECK(fails(Execute{0, {"a", "a"}})); }
  SECTION("an operation without tensors") { CHECK(fails(Execute{0, {}})); }
  SECTION("an error for a tensor that is not ready") { CHECK(fails(FailTensor{"b", "no"})); }
  SECTION("an epoch that skips") { CHECK(fails(Schedule{2, {Bucket(1, {"a"})}})); }
  SECTION("a bucket on channel 0") { CHECK(fails(Schedule{1, {Bucket(0, {"a"})}})); }
  SECTION("a tensor in two buckets") {
    CHECK(fails(Schedule{1, {Bucket(1, {"a"}), Bucket(2, {"a"})}}));
  }
  SECTION("an unknown channel") { CHECK(fails(Freeze{7})); }
  SECTION("retired before it is frozen") {
    node.Receive(Bucket(1, {"a"}));
    CHECK(fails(Retire{2, 1, 1}));
  }
}

TEST_CASE("NodeScheduler: an operation that completed though others never started it is an error") {
  SchedulingNode node;
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a"}));
  node.Finish(node.TakeOne<StartOperation>().operation);
  node.Receive(Freeze{1});
  CHECK_FALSE(node.scheduler.OnMessage(Retire{2, 1, 0}, node.now).ok());
}

TEST_CASE("NodeScheduler: tells what is pending and why") {
  SchedulingNode node;
  node.scheduler.Intern("b");
  node.Ready("a");
  node.Ready("c");
  node.Take();
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.scheduler.Pending(node.now).empty());
  const std::vector<PendingTensor> pending = node.scheduler.Pending(node.now + milliseconds(1));
  REQUIRE(pending.size() == 2);
  CHECK(node.scheduler.Lookup("c").state == TensorState::kAnnounced);
  const PendingTensor a = node.scheduler.Lookup("a");
  CHECK(a.state == TensorState::kHeld);
  CHECK(a.channel == 1);
  REQUIRE(a.missing.size() == 1);
  CHECK(node.scheduler.NameOf(a.missing[0]) == "b");
}

TEST_CASE("NodeScheduler: counts the messages of a step") {
  SchedulingNode node;
  for (std::uint32_t step = 0; step < 3; ++step) {
    node.Ready("a");
    node.Take();
    node.Receive(Execute{step, {"a"}});
    node.Finish(node.TakeOne<StartOperation>().operation);
  }
  CHECK(node.scheduler.Status().messages_last_step == 2);
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a"}));
  node.Finish(node.TakeOne<StartOperation>().operation);
  for (int step = 0; step < 3; ++step) {
    node.Ready("a");
    node.Finish(node.TakeOne<StartOperation>().operation);
  }
  CHECK(node.scheduler.Status().messages_last_step == 0);
  CHECK(node.scheduler.Status().buckets.at(0).occurrences == 4);
}

}  // namespace
}  // namespace ringd
