// One node's scheduler as its tests drive it.
#ifndef RINGD_TESTS_DAEMON_SCHEDULE_NODE_SCHEDULING_NODE_H_
#define RINGD_TESTS_DAEMON_SCHEDULE_NODE_SCHEDULING_NODE_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/schedule/node/node_scheduler.h"

namespace ringd {

inline TensorMeta Floats(std::int64_t count) {
  TensorMeta meta;
  meta.shape = {count};
  return meta;
}

// All local ranks are blocked, or none is.
class FixedView final : public LocalRankView {
 public:
  explicit FixedView(bool blocked) : blocked_(blocked) {}
  bool AbsentRanksAreBlocked(TensorHandle) const override { return blocked_; }

 private:
  bool blocked_;
};

// A scheduler, and what it wants done.
template <typename Scheduler>
struct ActingNode {
  template <typename Config>
  explicit ActingNode(Config config) : scheduler(std::move(config)) {}

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

  Scheduler scheduler;
};

// Node 0 of two, with short words for what the tests do.
struct SchedulingNode : ActingNode<NodeScheduler> {
  SchedulingNode() : ActingNode(Config()) {}

  static NodeSchedulerConfig Config() {
    NodeSchedulerConfig config;
    config.first_rank = Rank(4);
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
  void Finish(OperationId operation) { scheduler.OnFinished(operation, now); }

  TimePoint now;
  Epoch epoch = 0;
};

inline ScheduledBucket Bucket(std::uint32_t channel, const std::vector<std::string>& names) {
  ScheduledBucket bucket;
  bucket.channel = channel;
  bucket.expected_fill = std::chrono::milliseconds(1);
  for (const std::string& name : names) bucket.tensors.push_back({name, Floats(8)});
  return bucket;
}

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SCHEDULE_NODE_SCHEDULING_NODE_H_
