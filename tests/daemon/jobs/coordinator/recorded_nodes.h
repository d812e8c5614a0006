// The nodes of a job as a coordinator under test sees them: what it sends to each is kept.
#ifndef RINGD_TESTS_DAEMON_JOBS_COORDINATOR_RECORDED_NODES_H_
#define RINGD_TESTS_DAEMON_JOBS_COORDINATOR_RECORDED_NODES_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/jobs/coordinator/job_coordinator.h"

namespace ringd {

// Thread safety: none.
class RecordedNodes final : public NodeSender {
 public:
  void SendToNode(LinkId link, v1::CoordinatorMessage message) override {
    sent_[link].push_back(std::move(message));
  }
  void CloseNode(LinkId link, const absl::Status& reason) override {
    closed_.emplace(link, reason);
  }

  const std::vector<v1::CoordinatorMessage>& To(LinkId link) { return sent_[link]; }
  bool Closed(LinkId link) const { return closed_.count(link) > 0; }

  // The texts of the Failure messages sent to the node.
  std::vector<std::string> FailuresOf(LinkId link) {
    std::vector<std::string> texts;
    for (const v1::CoordinatorMessage& message : sent_[link]) {
      if (message.has_failure()) texts.push_back(message.failure().text());
    }
    return texts;
  }
  // The last message of a kind, by `has` and `get` of v1::CoordinatorMessage; empty if none.
  template <typename Body>
  const Body& Last(LinkId link, bool (v1::CoordinatorMessage::*has)() const,
                   const Body& (v1::CoordinatorMessage::*get)() const) {
    const auto& messages = sent_[link];
    for (auto it = messages.rbegin(); it != messages.rend(); ++it) {
      if (((*it).*has)()) return ((*it).*get)();
    }
    static const Body none;
    return none;
  }
  void Clear() { sent_.clear(); }

 private:
  std::map<LinkId, std::vector<v1::CoordinatorMessage>> sent_;
  std::map<LinkId, absl::Status> closed_;
};

inline v1::Hello HelloOf(const std::string& node, int size, int local_size) {
  v1::Hello hello;
  hello.set_node_name(node);
  hello.set_size(size);
  hello.set_local_size(local_size);
  hello.set_transport_address("address of " + node);
  return hello;
}

inline v1::NodeMessage RankJoinedOf(int rank, int local_rank, int pid) {
  v1::NodeMessage message;
  v1::RankInfo& info = *message.mutable_rank_joined()->mutable_rank();
  info.set_rank(rank);
  info.set_local_rank(local_rank);
  info.set_pid(pid);
  info.set_program("train.py");
  return message;
}

inline JobCoordinator::Options OptionsOf(int size) {
  JobCoordinator::Options options;
  options.job_id = "job";
  options.size = size;
  options.wire_id = 77;
  options.generation = 3;
  options.start_timeout = std::chrono::seconds(10);
  options.algorithms.chunk_bytes = 4096;
  return options;
}

// A coordinator to which all nodes of one rank each, node0, node1, ..., have come.
struct JoinedNodes {
  explicit JoinedNodes(const JobCoordinator::Options& options)
      : size(options.size), coordinator(options, &nodes, now) {
    for (int i = 0; i < size; ++i) {
      coordinator.AddNode(LinkOf(i), HelloOf("node" + std::to_string(i), size, 1), now);
    }
    for (int i = 0; i < size; ++i) {
      coordinator.OnMessage(LinkOf(i), RankJoinedOf(i, 0, 100 + i), now);
    }
  }

  static LinkId LinkOf(int node) { return LinkId(static_cast<std::uint64_t>(node + 1)); }

  v1::Membership MembershipOf(int node) {
    return nodes.Last(LinkOf(node), &v1::CoordinatorMessage::has_membership,
                      &v1::CoordinatorMessage::membership);
  }
  bool Started(int node = 0) { return MembershipOf(node).nodes_size() > 0; }

  int size;
  Clock::time_point now = Clock::now();
  RecordedNodes nodes;
  JobCoordinator coordinator;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_JOBS_COORDINATOR_RECORDED_NODES_H_
