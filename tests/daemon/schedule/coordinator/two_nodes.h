// A coordinator of two nodes under test, with short words for what tests do.
#ifndef RINGD_TESTS_DAEMON_SCHEDULE_COORDINATOR_TWO_NODES_H_
#define RINGD_TESTS_DAEMON_SCHEDULE_COORDINATOR_TWO_NODES_H_

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/schedule/coordinator/coordinator.h"

namespace ringd {

inline TensorMeta Floats(std::int64_t count) {
  TensorMeta meta;
  meta.shape = {count};
  return meta;
}

// Unless told otherwise the planner puts everything into one bucket if it may.
struct Two {
  explicit Two(std::size_t max_buckets = 100) : Two(Config(max_buckets)) {}
  explicit Two(CoordinatorConfig config, std::unique_ptr<const BucketPlanner> planner = Planner())
      : coordinator(std::move(config), std::move(planner)) {}

  static CoordinatorConfig Config(std::size_t max_buckets) {
    CoordinatorConfig config;
    config.node_names = {"node-a", "node-b"};
    config.max_buckets = max_buckets;
    return config;
  }
  static std::unique_ptr<const BucketPlanner> Planner() {
    return std::make_unique<ThresholdPlanner>(std::size_t{1} << 30);
  }

  absl::Status Send(int node, const NodeMessage& message) {
    return coordinator.OnMessage(NodeIndex(node), message, now);
  }
  void Expect(int node, const NodeMessage& message) {
    const absl::Status status = Send(node, message);
    INFO(status);
    REQUIRE(status.ok());
  }
  void Announce(int node, const std::string& name, TensorMeta meta = Floats(8),
                bool follows_wait = false) {
    ReadyTensor tensor{name, {{Rank(node * 2), std::move(meta)}}, follows_wait};
    Expect(node, Ready{epoch, {std::move(tensor)}});
  }
  void AnnounceAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      now += std::chrono::milliseconds(1);
      for (int node = 0; node < 2; ++node) Announce(node, name);
    }
  }
  std::vector<CoordinatorMessage> Flush() {
    std::vector<CoordinatorMessage> messages;
    coordinator.Flush(now, messages);
    return messages;
  }
  template <typename T>
  T FlushOne() {
    const std::vector<CoordinatorMessage> messages = Flush();
    REQUIRE(messages.size() == 1);
    REQUIRE(std::holds_alternative<T>(messages[0]));
    return std::get<T>(messages[0]);
  }
  // Two alike steps, and the announcement that begins the third.
  Schedule Learn(const std::vector<std::string>& names) {
    for (int step = 0; step < 2; ++step) {
      AnnounceAll(names);
      Flush();
    }
    Announce(0, names[0]);
    const Schedule schedule = FlushOne<Schedule>();
    epoch = schedule.epoch;
    return schedule;
  }

  Coordinator coordinator;
  TimePoint now;
  Epoch epoch = 0;
};

inline std::vector<std::string> Names(const ScheduledBucket& bucket) {
  std::vector<std::string> names;
  for (const ScheduledTensor& tensor : bucket.tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_SCHEDULE_COORDINATOR_TWO_NODES_H_
