// Agrees with all nodes of one communicator on what is reduced together, and in which order.
//
// There is one per communicator, on the node of rank 0. It pairs the nodes' announcements
// (negotiation), watches which tensors return in each step, and hands out buckets that the nodes
// then start without asking (learning). The protocol is in daemon/schedule/README.md.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Ownership: keeps copies of what it is given, and owns the planner.
// Invariants:
//   1. Every tensor name is at any moment either negotiated or in exactly one live channel.
//   2. All nodes receive the same messages in the same order.
//   3. Channel numbers and the sequence of channel 0 only grow; neither is ever reused.
#ifndef RINGD_DAEMON_SCHEDULE_COORDINATOR_COORDINATOR_H_
#define RINGD_DAEMON_SCHEDULE_COORDINATOR_COORDINATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/schedule/coordinator/negotiation_table.h"
#include "daemon/schedule/planning/bucket_planner.h"
#include "daemon/schedule/planning/kept_plan.h"
#include "daemon/schedule/planning/schedule_planner.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "proto/types/ids.h"

namespace ringd {

struct CoordinatorConfig {
  std::vector<std::string> node_names;  // one per node, index 0 first; they appear in errors
  std::size_t fusion_threshold_bytes = std::size_t{64} << 20;  // of a negotiated operation
  bool learn = true;
  int periods_to_learn = 2;  // alike steps before a tensor is scheduled
  // Learned buckets at a time. Nodes start them in different orders, so the backend must be able to
  // have all of them in flight together, and one negotiated operation more.
  std::size_t max_buckets = 1536;
  // What a learned bucket of tensors on GPUs holds at most, if they are several. Nothing measures
  // what NCCL takes; the default is that of PyTorch's DDP.
  std::size_t launched_bucket_bytes = std::size_t{25} << 20;
  LinkModel link;  // node_count is taken from node_names
  // Of earlier jobs on the same nodes. If the tensors of one are seen to come, its buckets are
  // scheduled after their first period instead of periods_to_learn.
  std::vector<std::shared_ptr<const KeptPlan>> kept_plans;
  // The communicator's name, if its operations are matched by order: then nodes announce only those
  // of which one of them has seen that they differ (OrderedScheduler). Nothing is learned.
  std::optional<std::string> ordered = std::nullopt;
};

// Where the buckets come from.
enum class PlanOrigin : std::uint8_t { kNone, kLearned, kKept, kReplanned };

struct CoordinatorBucketStatus {
  std::uint32_t channel = 0;
  std::size_t bytes = 0;
  bool freezing = false;
  BucketTimes predicted;
  std::vector<std::string> tensors;
};

struct CoordinatorStatus {
  Epoch epoch = 0;
  std::uint64_t messages_received = 0;  // from all nodes
  std::uint64_t messages_sent = 0;      // each broadcast counts once per node
  std::uint64_t periods = 0;            // steps in which something was negotiated
  std::uint64_t operations_negotiated = 0;
  std::uint64_t operations_launched = 0;  // of learned buckets
  std::uint64_t tensors_failed = 0;
  std::uint64_t schedules_sent = 0;
  std::uint64_t breaks[kBreakReasonCount] = {};  // channels retired, by reason
  std::size_t tensors_scheduled = 0;
  std::vector<CoordinatorBucketStatus> buckets;
  PlanOrigin origin = PlanOrigin::kNone;
  PlanOrigin first_origin = PlanOrigin::kNone;
  std::uint64_t replans = 0;
  PlanComparison plan;
  LinkModel link;
};

// By how much a new plan must end the step earlier: by this share of what the step takes after its
// last tensor is ready, which is all that it pays for its all-reduces, and by so much at least.
// `enough` is worth a change whatever the step takes: where the line is busy for a second, a first
// bucket that comes late costs some milliseconds of each.
struct LeastGain {
  double share = 0.05;
  std::chrono::nanoseconds time = std::chrono::microseconds(50);
  std::chrono::nanoseconds enough = std::chrono::milliseconds(2);
};

class Coordinator {
 public:
  // `planner` must not be null.
  Coordinator(CoordinatorConfig config, std::unique_ptr<const BucketPlanner> planner);
  ~Coordinator();

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Messages of one node must arrive in the order in which it sent them. An error means that the
  // node broke the protocol: the communicator must fail.
  absl::Status OnMessage(NodeIndex from, const NodeMessage& message, TimePoint now);

  // Closes the operations that are being gathered and appends what has to go to every node, in
  // this order. Call it once after each batch of messages: what completes in one batch is fused.
  void Flush(TimePoint now, std::vector<CoordinatorMessage>& broadcasts);

  // New measurements of the link, and of when tensors become ready within the step (names that are
  // in no bucket are ignored); used for plans made from now on.
  void SetLinkModel(const LinkModel& link);
  void SetReadiness(const std::unordered_map<std::string, std::chrono::nanoseconds>& offsets);
  // Retires all buckets and plans them anew.
  void Replan();
  // The same, if a new plan would end the step earlier by so much, or with half as many buckets
  // later by no more than an operation's overhead. False: it would not, or buckets are on their way
  // out of service already.
  bool ReplanIfBetter(const LeastGain& least);

  // Tensors whose first announcement came before `announced_before` and which some nodes lack,
  // oldest first. Tensors in learned buckets are not known here: ask the nodes.
  std::vector<StalledTensor> Stalled(TimePoint announced_before) const;
  CoordinatorStatus Status() const;
  // The buckets in service and what they were planned from, for the next job; without the link.
  KeptPlan Learned() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_COORDINATOR_COORDINATOR_H_
