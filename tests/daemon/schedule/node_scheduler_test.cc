#include "daemon/schedule/node_scheduler.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ringd {
namespace {

using std::chrono::milliseconds;

TensorMeta Floats(std::int64_t count) {
  TensorMeta meta;
  meta.shape = {count};
  return meta;
}

class FixedView final : public LocalRankView {
 public:
  explicit FixedView(bool blocked) : blocked_(blocked) {}
  bool AbsentRanksAreBlocked(TensorHandle) const override { return blocked_; }

 private:
  bool blocked_;
};

// Node 0 of two, with short words for what the tests do.
struct Node {
  explicit Node(int node_count = 2) : scheduler(Config(node_count)) {}

  static NodeSchedulerConfig Config(int node_count) {
    NodeSchedulerConfig config;
    config.node_count = node_count;
    config.first_rank = Rank(4);
    config.node_name = "node-a";
    return config;
  }

  void Ready(const std::string& name, TensorMeta meta = Floats(8)) {
    scheduler.OnLocallyReady(scheduler.Intern(name), meta, false, now);
  }
  void Receive(const CoordinatorMessage& message) {
    const absl::Status status = scheduler.OnMessage(message, now);
    INFO(status);
    REQUIRE(status.ok());
  }
  void Receive(const ScheduledBucket& bucket) { Receive(Schedule{++epoch, {bucket}}); }
  std::vector<Action> Take() {
    std::vector<Action> actions;
    scheduler.TakeActions(actions);
    return actions;
  }
  // The only action there is.
  template <typename T>
  T TakeOne() {
    const std::vector<Action> actions = Take();
    REQUIRE(actions.size() == 1);
    REQUIRE(std::holds_alternative<T>(actions[0]));
    return std::get<T>(actions[0]);
  }
  template <typename T>
  T TakeMessage() {
    const SendToCoordinator send = TakeOne<SendToCoordinator>();
    REQUIRE(std::holds_alternative<T>(send.message));
    return std::get<T>(send.message);
  }
  void Finish(OperationId operation) { scheduler.OnFinished(operation, now); }

  NodeScheduler scheduler;
  TimePoint now;
  Epoch epoch = 0;
};

ScheduledBucket Bucket(std::uint32_t channel, const std::vector<std::string>& names) {
  ScheduledBucket bucket;
  bucket.channel = channel;
  bucket.expected_fill = milliseconds(1);
  for (const std::string& name : names) bucket.tensors.push_back({name, Floats(8)});
  return bucket;
}

}  // namespace

TEST_CASE("NodeScheduler: announces in one message what became ready in one batch") {
  Node node;
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
  Node node;
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
  Node node;
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

TEST_CASE("NodeScheduler: one node starts at once and sends nothing") {
  Node node(1);
  node.Ready("a");
  CHECK(node.TakeOne<StartOperation>().operation == OperationId{0, 0});
  node.Ready("b");
  CHECK(node.TakeOne<StartOperation>().operation == OperationId{0, 1});
  node.scheduler.OnLocalMismatch(node.scheduler.Intern("x"),
                                 {{Rank(4), Floats(1)}, {Rank(5), Floats(2)}}, node.now);
  CHECK(
      node.TakeOne<TensorFailed>().status.message() ==
      "tensor 'x': rank 4 on node-a submitted float32 [1], rank 5 on node-a submitted float32 [2]");
  CHECK(node.scheduler.Status().messages_sent == 0);
}

TEST_CASE("NodeScheduler: a learned bucket starts when full, each time, without a message") {
  Node node;
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

TEST_CASE("NodeScheduler: the schedule takes over what was announced") {
  Node node;
  node.Ready("a");
  node.Ready("b");
  node.Take();
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.TakeOne<StartOperation>().operation == OperationId{1, 0});
}

TEST_CASE("NodeScheduler: a tensor that is running when it is scheduled joins with its next turn") {
  Node node;
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
  Node node;
  node.Ready("a");
  node.scheduler.Intern("b");
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.Take().empty());
  CHECK(node.scheduler.Lookup("a").state == TensorState::kHeld);
}

TEST_CASE("NodeScheduler: another shape breaks the bucket, and after it both are negotiated") {
  Node node;
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
  Node node;
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
  Node node;
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
  Node node;
  node.scheduler.Intern("a");
  node.Receive(Bucket(1, {"a"}));
  node.Receive(Freeze{1});
  node.Take();
  node.Ready("a");
  CHECK(node.Take().empty());
}

TEST_CASE("NodeScheduler: blocked ranks break a partly filled bucket after the patience") {
  Node node;
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
  Node node;
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
  Node node;
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
  Node node;
  node.scheduler.Intern("a");
  node.Receive(Bucket(1, {"a", "b"}));
  CHECK(node.TakeMessage<Break>() == Break{1, BreakReason::kWithdrawn, 0, {"b"}});
}

TEST_CASE("NodeScheduler: the handle of a tensor that only a bucket named is used again after it") {
  Node node;
  const TensorHandle a = node.scheduler.Intern("a");
  node.Receive(Bucket(1, {"a", "b"}));
  node.Receive(Freeze{1});
  node.Receive(Retire{2, 1, 0});
  const TensorHandle c = node.scheduler.Intern("c");
  CHECK(c.value() == a.value() + 1);
  CHECK(node.scheduler.NameOf(c) == "c");
  CHECK(node.scheduler.Lookup("b").state == TensorState::kIdle);
}

TEST_CASE("NodeScheduler: messages that break the protocol are errors") {
  Node node;
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
  Node node;
  node.Ready("a");
  node.Take();
  node.Receive(Bucket(1, {"a"}));
  node.Finish(node.TakeOne<StartOperation>().operation);
  node.Receive(Freeze{1});
  CHECK_FALSE(node.scheduler.OnMessage(Retire{2, 1, 0}, node.now).ok());
}

TEST_CASE("NodeScheduler: tells what is pending and why") {
  Node node;
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
  Node node;
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

}  // namespace ringd
