#include "daemon/schedule/node/ordered_scheduler.h"

#include <catch2/catch.hpp>
#include <vector>

#include "daemon/schedule/protocol/ordered_name.h"
#include "tests/daemon/schedule/node/scheduling_node.h"

namespace ringd {
namespace {

struct Node : ActingNode<OrderedScheduler> {
  Node() : ActingNode(Rank(4)) {}

  void Ready(TensorHandle place, std::int64_t count) {
    scheduler.OnLocallyReady(place, Floats(count), false, now);
  }
  // The operations from number `first` on that come before `end` come and end.
  void Run(std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t number = first; number < end; ++number) {
      Ready(TensorHandle(OrderedPlaceOf(number)), 1);
      scheduler.OnFinished(TakeOne<StartOperation>().operation, now);
    }
  }
  // The numbers of those that are started now.
  std::vector<std::uint64_t> TakeStarted() {
    std::vector<std::uint64_t> numbers;
    for (const Action& action : Take()) {
      const OperationId id = std::get<StartOperation>(action).operation;
      numbers.push_back(OrderedNumberOf(OrderedScheduler::PlaceOf(id).value(), id.sequence));
    }
    return numbers;
  }
  ReadyTensor TakeAnnouncement() {
    const auto ready = TakeMessage<ringd::Ready>();
    REQUIRE(ready.tensors.size() == 1);
    return ready.tensors.front();
  }

  TimePoint now;
};

constexpr TensorHandle kFirst(0);

}  // namespace

TEST_CASE("OrderedScheduler: starts at once what the local ranks have submitted, and asks nobody") {
  Node node;
  for (std::uint32_t number = 0; number < 3 * kOrderedPlaces; ++number) {
    const TensorHandle place(number % kOrderedPlaces);
    node.Ready(place, 3);
    const auto start = node.TakeOne<StartOperation>();
    CHECK(start.operation == OrderedScheduler::DataId(place.value(), number / kOrderedPlaces));
    CHECK(OrderedScheduler::PlaceOf(start.operation) == place);
    REQUIRE(start.tensors->size() == 1);
    const std::string name = OrderedName(number);
    CHECK(node.scheduler.NameOf(place) == name);
    CHECK(node.scheduler.Intern(name) == place);
    node.scheduler.OnFinished(start.operation, node.now);
    CHECK(node.Take().empty());
  }
}

TEST_CASE("OrderedScheduler: nodes where operations end in different orders start in one") {
  // 64 are in flight on both nodes, and the ranks have submitted two more: each of these is ready
  // once the one before it in its place has ended.
  const auto start_after = [](std::uint32_t first_end, std::uint32_t second_end) {
    Node node;
    for (std::uint32_t place = 0; place < kOrderedPlaces; ++place) {
      node.Ready(TensorHandle(place), 1);
    }
    CHECK(node.TakeStarted().size() == kOrderedPlaces);
    for (const std::uint32_t place : {first_end, second_end}) {
      node.scheduler.OnFinished(OrderedScheduler::DataId(place, 0), node.now);
      node.Ready(TensorHandle(place), 1);
    }
    return node.TakeStarted();
  };
  const std::vector<std::uint64_t> in_order = {kOrderedPlaces, kOrderedPlaces + 1};
  CHECK(start_after(0, 1) == in_order);
  CHECK(start_after(1, 0) == in_order);
}

TEST_CASE(
    "OrderedScheduler: what is ready early waits for those before it, to their start or end") {
  Node node;
  node.Ready(TensorHandle(3), 1);
  node.Ready(TensorHandle(2), 1);
  node.scheduler.OnLocalMismatch(TensorHandle(1), {{Rank(4), Floats(1)}, {Rank(5), Floats(2)}},
                                 node.now);
  CHECK(node.TakeAnnouncement().name == "operation 1");
  node.Ready(kFirst, 1);
  CHECK(node.TakeStarted() == std::vector<std::uint64_t>{0});
  // What is known to fail holds up those behind it until it has.
  CHECK(node.scheduler.OnInquiry("operation 1").ok());
  CHECK(node.Take().empty());
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 1", "they differ"}, node.now).ok());
  const std::vector<Action> actions = node.Take();
  REQUIRE(actions.size() == 3);
  CHECK(std::get<TensorFailed>(actions[0]).tensor == TensorHandle(1));
  CHECK(std::get<StartOperation>(actions[1]).operation == OrderedScheduler::DataId(2, 0));
  CHECK(std::get<StartOperation>(actions[2]).operation == OrderedScheduler::DataId(3, 0));
}

TEST_CASE("OrderedScheduler: one that is asked for while it waits for its turn is never started") {
  Node node;
  node.Ready(TensorHandle(1), 1);
  CHECK(node.scheduler.OnInquiry("operation 1").ok());
  CHECK(node.TakeAnnouncement().name == "operation 1");
  node.Ready(kFirst, 1);
  CHECK(node.TakeStarted() == std::vector<std::uint64_t>{0});
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 1", "they differ"}, node.now).ok());
  CHECK(node.TakeOne<TensorFailed>().tensor == TensorHandle(1));
  node.Ready(TensorHandle(2), 1);
  CHECK(node.TakeStarted() == std::vector<std::uint64_t>{2});
}

TEST_CASE("OrderedScheduler: an operation and its guard have channels of their own") {
  const Node node;
  for (std::uint32_t place = 0; place < kOrderedPlaces; ++place) {
    const OperationId data = OrderedScheduler::DataId(place, 7);
    const OperationId guard = *node.scheduler.GuardOf(data);
    CHECK(data.channel != 0);
    CHECK(guard.channel != data.channel);
    CHECK(node.scheduler.OperationOf(data) == data);
    CHECK(node.scheduler.OperationOf(guard) == data);
    CHECK_FALSE(node.scheduler.IsLearned(data));
    CHECK(OrderedScheduler::PlaceOf(data) == TensorHandle(place));
  }
}

TEST_CASE("OrderedScheduler: digests differ in whatever descriptions differ in") {
  const Node node;
  std::vector<TensorMeta> metas(8, Floats(10));
  metas[1].shape = {11};
  metas[2].dtype = DataType::kInt32;
  metas[3].op = ReduceOp::kMax;
  metas[4].kind = CollectiveKind::kBroadcast;
  metas[5].kind = CollectiveKind::kBroadcast;
  metas[5].root_rank = Rank(1);
  metas[6].prescale = 2.0;
  metas[7].postscale = 2.0;
  for (std::size_t a = 0; a < metas.size(); ++a) {
    for (std::size_t b = 0; b < metas.size(); ++b) {
      const bool same = node.scheduler.DigestOf(metas[a]) == node.scheduler.DigestOf(metas[b]);
      CHECK(same == (a == b));
    }
  }
}

TEST_CASE("OrderedScheduler: local ranks that differ are told to the coordinator, which ends it") {
  Node node;
  node.scheduler.OnLocalMismatch(kFirst, {{Rank(4), Floats(1)}, {Rank(5), Floats(2)}}, node.now);
  const ReadyTensor told = node.TakeAnnouncement();
  CHECK(told.name == "operation 0");
  CHECK(told.reports.size() == 2);
  // All nodes are asked, this one as well.
  CHECK(node.scheduler.OnInquiry("operation 0").ok());
  CHECK(node.Take().empty());
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 0", "they differ"}, node.now).ok());
  const auto failed = node.TakeOne<TensorFailed>();
  CHECK(failed.tensor == kFirst);
  CHECK(failed.status == absl::InvalidArgumentError("they differ"));
  node.Run(1, kOrderedPlaces);
  node.Ready(kFirst, 1);
  CHECK(node.TakeOne<StartOperation>().operation == OrderedScheduler::DataId(0, 1));
}

TEST_CASE(
    "OrderedScheduler: one that is under way elsewhere is announced, and cancelled at its end") {
  Node node;
  node.Ready(kFirst, 1);
  const OperationId id = node.TakeOne<StartOperation>().operation;
  CHECK(node.scheduler.OnInquiry("operation 0").ok());
  CHECK(node.TakeAnnouncement().reports == std::vector<RankMeta>{{Rank(4), Floats(1)}});
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 0", "they differ"}, node.now).ok());
  const std::vector<Action> actions = node.Take();
  REQUIRE(actions.size() == 2);
  CHECK(std::get<CancelOperation>(actions[0]).operation == id);
  CHECK(std::get<TensorFailed>(actions[1]).tensor == kFirst);
}

TEST_CASE("OrderedScheduler: what did not fit on the wire is announced once and not cancelled") {
  Node node;
  node.Ready(kFirst, 1);
  const OperationId id = node.TakeOne<StartOperation>().operation;
  CHECK(node.scheduler.OnDisagreement(id));
  CHECK(node.TakeAnnouncement().name == "operation 0");
  CHECK(node.scheduler.OnInquiry("operation 0").ok());
  CHECK(node.Take().empty());
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 0", "they differ"}, node.now).ok());
  CHECK(node.TakeOne<TensorFailed>().tensor == kFirst);
}

TEST_CASE("OrderedScheduler: what did not fit after its end is not held against the next one") {
  Node node;
  node.Ready(kFirst, 1);
  const OperationId id = node.TakeOne<StartOperation>().operation;
  CHECK(node.scheduler.OnInquiry("operation 0").ok());
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 0", "they differ"}, node.now).ok());
  CHECK(node.scheduler.OnDisagreement(id));
  node.Take();
  node.Run(1, kOrderedPlaces);
  node.Ready(kFirst, 1);
  CHECK(node.TakeOne<StartOperation>().operation == OrderedScheduler::DataId(0, 1));
}

TEST_CASE("OrderedScheduler: who is behind announces when its ranks come, and starts nothing") {
  Node node;
  // The next occurrence of the place.
  CHECK(node.scheduler.OnInquiry("operation 64").ok());
  node.Run(0, kOrderedPlaces);
  node.Ready(kFirst, 2);
  const ReadyTensor told = node.TakeAnnouncement();
  CHECK(told.name == "operation 64");
  CHECK(told.reports == std::vector<RankMeta>{{Rank(4), Floats(2)}});
  CHECK(node.scheduler.OnMessage(FailTensor{"operation 64", "they differ"}, node.now).ok());
  CHECK(node.TakeOne<TensorFailed>().tensor == kFirst);
}

TEST_CASE("OrderedScheduler: a name says how many operations come before in its place") {
  Node node;
  node.Ready(kFirst, 1);
  node.scheduler.OnFinished(node.TakeOne<StartOperation>().operation, node.now);
  CHECK(node.scheduler.Find("operation 0")->has_ended);
  CHECK_FALSE(node.scheduler.Find("operation 64")->has_ended);
  CHECK(node.scheduler.Find("operation 64")->before == 0);
  CHECK(node.scheduler.Find("operation 192")->before == 2);
  CHECK(node.scheduler.Find("operation 193")->tensor == TensorHandle(1));
  CHECK_FALSE(node.scheduler.Find("x").has_value());
}

TEST_CASE("OrderedScheduler: messages that break the protocol are errors") {
  Node node;
  node.Ready(kFirst, 1);
  node.scheduler.OnFinished(node.TakeOne<StartOperation>().operation, node.now);
  node.Ready(kFirst, 1);
  node.Take();
  const auto fails = [&](const CoordinatorMessage& message) {
    return !node.scheduler.OnMessage(message, node.now).ok();
  };
  CHECK(fails(Execute{0, {"operation 64"}}));
  CHECK(fails(Freeze{1}));
  CHECK(fails(FailTensor{"operation 64", "not announced"}));
  CHECK(fails(FailTensor{"x", "no operation"}));
  // It has ended: whoever asks has heard so from a node that makes things up.
  CHECK(node.scheduler.OnInquiry("operation 0").ok());
  CHECK(node.Take().empty());
  CHECK_FALSE(node.scheduler.OnInquiry("operation").ok());
  CHECK_FALSE(node.scheduler.OnInquiry("operation 18446744073709551615").ok());
}

}  // namespace ringd
