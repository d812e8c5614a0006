// What a NodeScheduler does with tensors on GPUs: their buckets start when the coordinator launches
// them, and what is behind a stream's wait is not offered before what that may be for.
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "tests/daemon/schedule/node/scheduling_node.h"

namespace ringd {
namespace {

using std::chrono::milliseconds;

TensorMeta OnGpu(std::int64_t count = 8) {
  TensorMeta meta = Floats(count);
  meta.place = TensorPlace::kDevice;
  return meta;
}

struct GpuNode : SchedulingNode {
  void Learn(std::uint32_t channel, const std::vector<std::string>& names) {
    ScheduledBucket bucket = Bucket(channel, names);
    for (ScheduledTensor& tensor : bucket.tensors) {
      scheduler.Intern(tensor.name);
      tensor.meta = OnGpu();
    }
    Receive(bucket);
  }
  void ReadyOnGpu(const std::string& name) { Ready(name, OnGpu()); }
  void ReadyBehindWait(const std::string& name) {
    scheduler.OnStreamWait();
    ReadyOnGpu(name);
  }
  std::vector<std::string> TakeAnnounced() {
    std::vector<std::string> names;
    for (const ReadyTensor& tensor : TakeMessage<ringd::Ready>().tensors) {
      names.push_back(tensor.name);
    }
    return names;
  }
};

TEST_CASE("NodeScheduler: a full bucket on GPUs is offered, and starts when it is launched") {
  GpuNode node;
  node.Learn(1, {"a", "b"});
  for (std::uint32_t occurrence = 0; occurrence < 3; ++occurrence) {
    node.ReadyOnGpu("b");
    CHECK(node.Take().empty());
    node.ReadyOnGpu("a");
    CHECK(node.TakeMessage<Filled>() == Filled{1, occurrence});
    // However long the others take, nothing is broken.
    node.now += std::chrono::seconds(60);
    node.scheduler.OnTick(node.now, FixedView(true));
    CHECK(node.Take().empty());
    node.Receive(Launch{1, occurrence});
    CHECK(node.TakeOne<StartOperation>().operation == OperationId{1, occurrence});
    node.Finish({1, occurrence});
  }
  CHECK(node.scheduler.Status().operations_learned == 3);
}

TEST_CASE("NodeScheduler: a bucket on GPUs that was offered is negotiated if it is frozen") {
  GpuNode node;
  node.Learn(1, {"a", "b"});
  node.ReadyOnGpu("a");
  node.ReadyOnGpu("b");
  node.TakeMessage<Filled>();
  node.Receive(Freeze{1});
  CHECK(node.TakeMessage<Frozen>() == Frozen{1, 0});
  node.Receive(Retire{++node.epoch, 1, 0});
  // No operation has started, so there is none to cancel.
  std::vector<std::string> names;
  for (const Action& action : node.Take()) {
    CHECK_FALSE(std::holds_alternative<CancelOperation>(action));
    if (const auto* send = std::get_if<SendToCoordinator>(&action)) {
      for (const ReadyTensor& tensor : std::get<Ready>(send->message).tensors) {
        names.push_back(tensor.name);
      }
    }
  }
  CHECK(names == std::vector<std::string>{"a", "b"});
}

TEST_CASE("NodeScheduler: a launch that this node has not offered is an error") {
  GpuNode node;
  node.Learn(1, {"a", "b"});
  node.ReadyOnGpu("a");
  const auto launch = [&](std::uint32_t channel, std::uint32_t occurrence) {
    return node.scheduler.OnMessage(Launch{channel, occurrence}, node.now);
  };
  CHECK_FALSE(launch(1, 0).ok());
  node.ReadyOnGpu("b");
  CHECK_FALSE(launch(1, 1).ok());
  CHECK_FALSE(launch(2, 0).ok());
  CHECK(launch(1, 0).ok());
  CHECK_FALSE(launch(1, 0).ok());
  node.Receive(Bucket(3, {"on the host"}));
  CHECK_FALSE(launch(3, 0).ok());
}

TEST_CASE("NodeScheduler: a launched bucket that ends elsewhere can't be taken back: an error") {
  GpuNode node;
  node.Learn(1, {"a"});
  node.ReadyOnGpu("a");
  node.Receive(Launch{1, 0});
  node.Receive(Freeze{1});
  CHECK_FALSE(node.scheduler.OnMessage(Retire{++node.epoch, 1, 0}, node.now).ok());
}

TEST_CASE("NodeScheduler: a bucket of tensors on a GPU and of others is an error") {
  GpuNode node;
  ScheduledBucket bucket = Bucket(1, {"a", "b"});
  bucket.tensors[1].meta = OnGpu();
  CHECK_FALSE(node.scheduler.OnMessage(Schedule{1, {bucket}}, node.now).ok());
}

TEST_CASE("NodeScheduler: what is behind a stream's wait is announced after what it may be for") {
  GpuNode node;
  node.ReadyOnGpu("a");
  CHECK(node.TakeAnnounced() == std::vector<std::string>{"a"});
  node.ReadyBehindWait("b");
  node.ReadyOnGpu("c");
  node.Ready("on the host");
  CHECK(node.TakeAnnounced() == std::vector<std::string>{"on the host"});
  node.ReadyBehindWait("d");
  node.Receive(Execute{0, {"a"}});
  const std::vector<Action> actions = node.Take();
  REQUIRE(actions.size() == 2);
  CHECK(std::holds_alternative<StartOperation>(actions[0]));
  const auto& ready = std::get<Ready>(std::get<SendToCoordinator>(actions[1]).message);
  REQUIRE(ready.tensors.size() == 2);
  CHECK(ready.tensors[0].name == "b");
  CHECK(ready.tensors[1].name == "c");
  // Both have to be started before the next wait's turn comes.
  node.Receive(Execute{1, {"b"}});
  node.TakeOne<StartOperation>();
  node.Receive(FailTensor{"c", "no"});
  CHECK(node.Take().size() == 2);
}

TEST_CASE("NodeScheduler: where all before a stream's wait has been launched, nothing is held") {
  GpuNode node;
  node.ReadyOnGpu("a");
  node.Take();
  node.Receive(Execute{0, {"a"}});
  node.Take();
  node.ReadyBehindWait("b");
  CHECK(node.TakeAnnounced() == std::vector<std::string>{"b"});
}

TEST_CASE("NodeScheduler: a stream that waits amid a bucket on GPUs breaks it at once") {
  GpuNode node;
  node.Learn(1, {"a", "b"});
  node.ReadyOnGpu("a");
  node.ReadyBehindWait("b");
  const auto request = node.TakeMessage<Break>();
  CHECK(request.reason == BreakReason::kBlocked);
  CHECK(request.tensors == std::vector<std::string>{"b"});
  node.Receive(Freeze{1});
  node.Take();
  // The patience is not for this: nothing waits for ranks here.
  node.now += std::chrono::seconds(1);
  node.scheduler.OnTick(node.now, FixedView(false));
  CHECK(node.Take().empty());
  node.Receive(Retire{++node.epoch, 1, 0});
  node.Learn(2, {"a"});
  node.Learn(3, {"b"});
  std::vector<Filled> offered;
  for (const Action& action : node.Take()) {
    const auto* send = std::get_if<SendToCoordinator>(&action);
    if (send != nullptr) offered.push_back(std::get<Filled>(send->message));
  }
  CHECK(offered == std::vector<Filled>{{2, 0}});
  node.Receive(Launch{2, 0});
  const std::vector<Action> actions = node.Take();
  REQUIRE(actions.size() == 2);
  CHECK(std::get<Filled>(std::get<SendToCoordinator>(actions[1]).message) == Filled{3, 0});
}

TEST_CASE("NodeScheduler: what waits for another rank's next tensor is let go after a while") {
  GpuNode node;
  node.ReadyOnGpu("a");
  node.Take();
  node.ReadyBehindWait("b");
  REQUIRE(node.scheduler.NextTick() == node.now + milliseconds(20));
  node.now += milliseconds(19);
  node.scheduler.OnTick(node.now, FixedView(false));
  CHECK(node.Take().empty());
  node.now += milliseconds(1);
  node.scheduler.OnTick(node.now, FixedView(false));
  CHECK(node.TakeAnnounced() == std::vector<std::string>{"b"});
  CHECK_FALSE(node.scheduler.NextTick().has_value());
}

}  // namespace
}  // namespace ringd
