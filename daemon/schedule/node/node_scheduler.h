// Decides when this node starts which operation of one communicator.
//
// The engine reports what its local ranks submitted and what finished; the scheduler answers with
// actions: start this operation, send this message to the coordinator. A tensor is either
// negotiated (announced to the coordinator, started when it says so) or belongs to a learned
// bucket, which is started without any message as soon as it is full. The protocol, and why it
// neither deadlocks nor pairs wrong operations, is in daemon/schedule/README.md.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Ownership: keeps copies of what it is given.
// Invariants:
//   1. A tensor that was reported ready ends in exactly one finished Start or one TensorFailed.
//   2. A started operation makes progress whatever other operations do: the engine must not let one
//      started learned operation (channel > 0) wait for another one to finish, since nodes start
//      them in different orders. Operations of channel 0 are started in the same order everywhere.
//   3. A learned operation changes no byte of its tensors before every node has started it.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_NODE_SCHEDULER_H_
#define RINGD_DAEMON_SCHEDULE_NODE_NODE_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/link/measurements.h"
#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/node/node_status.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/types/ids.h"

namespace ringd {

class NodeBucket;
class TensorTable;
struct NodeTensor;

struct NodeSchedulerConfig {
  Rank first_rank{0};  // the node's lowest rank, which speaks for the others in reports

  // A partly filled bucket is broken when the ranks that lack one of its tensors have been blocked
  // for this long, and 3 x its usual fill time has passed since its first tensor came.
  std::chrono::nanoseconds blocked_patience = std::chrono::milliseconds(20);
  // The same whether or not they are blocked, after max(late_patience, 10 x the usual fill time):
  // covers ranks that wait where ringd can't see it.
  std::chrono::nanoseconds late_patience = std::chrono::seconds(2);
};

// What OnTick asks about the local ranks.
class LocalRankView {
 public:
  virtual ~LocalRankView() = default;

  // True if every local rank that has not submitted the next occurrence of `missing` is blocked,
  // waiting for the completion of something it submitted before.
  virtual bool AbsentRanksAreBlocked(TensorHandle missing) const = 0;
};

class NodeScheduler {
 public:
  explicit NodeScheduler(NodeSchedulerConfig config);
  ~NodeScheduler();

  NodeScheduler(const NodeScheduler&) = delete;
  NodeScheduler& operator=(const NodeScheduler&) = delete;

  // The handle for `name`, the same each time.
  TensorHandle Intern(absl::string_view name);
  const std::string& NameOf(TensorHandle tensor) const;

  // All local ranks submitted the tensor and agree on `meta`. Its previous occurrence must have
  // ended (OnFinished or TensorFailed). `follows_wait`: see ReadyTensor.
  void OnLocallyReady(TensorHandle tensor, const TensorMeta& meta, bool follows_wait,
                      TimePoint now);
  // All local ranks submitted the tensor but disagree: one report per local rank. It will end in
  // TensorFailed once every node has submitted it.
  void OnLocalMismatch(TensorHandle tensor, std::vector<RankMeta> reports, TimePoint now);
  // A started, not cancelled operation has completed on this node.
  void OnFinished(OperationId operation, TimePoint now);

  // Messages must arrive in the order in which the coordinator sent them. An error means that
  // the coordinator broke the protocol or that a backend broke invariant 3: the communicator must
  // fail, its results can't be trusted.
  absl::Status OnMessage(const CoordinatorMessage& message, TimePoint now);

  // Gives up buckets that stay partly filled. Call it at NextTick() or later; calling it more often
  // is harmless.
  void OnTick(TimePoint now, const LocalRankView& ranks);
  // When OnTick has something to look at; nullopt while no bucket is partly filled. In the usual
  // course of a step that time is never reached.
  std::optional<TimePoint> NextTick() const;

  // Appends the actions gathered since the last call. Call it once per batch of inputs: readiness
  // reported in one batch travels as one message.
  void TakeActions(std::vector<Action>& out);

  // When the tensors of learned buckets become ready within the step, as far as it is known.
  // Nothing, unless that of some tensor has changed since the last call; one that has come into
  // another bucket counts as changed.
  std::vector<TensorReadiness> TakeReadiness();

  // For stall reports: tensors that became ready before `ready_before` and have not ended.
  std::vector<PendingTensor> Pending(TimePoint ready_before) const;
  PendingTensor Lookup(absl::string_view name) const;
  NodeSchedulerStatus Status() const;
  Epoch epoch() const { return counters_.epoch; }

 private:
  absl::Status Handle(const Execute& execute, TimePoint now);
  absl::Status Handle(const FailTensor& fail, TimePoint now);
  absl::Status Handle(const Schedule& schedule, TimePoint now);
  absl::Status Handle(const Freeze& freeze, TimePoint now);
  absl::Status Handle(const Retire& retire, TimePoint now);

  void OnReady(TensorHandle handle, const TensorMeta* meta, std::vector<RankMeta> reports,
               bool follows_wait, TimePoint now);

  absl::Status AdvanceEpoch(Epoch epoch);
  absl::Status AddBucket(const ScheduledBucket& scheduled, TimePoint now);
  absl::Status CancelBeyond(const NodeBucket& bucket, std::uint32_t final_count);

  void Place(TensorHandle handle, TimePoint now);
  void Announce(TensorHandle handle);
  void Start(OperationId operation, const TensorList& tensors);
  void StartIfFull(NodeBucket& bucket, TimePoint now);
  void RequestBreak(NodeBucket& bucket, BreakReason reason,
                    const std::vector<TensorHandle>& tensors);
  void FailTensorNow(TensorHandle handle, absl::string_view error);
  void Send(NodeMessage message);
  void CountStep(NodeTensor& tensor, TimePoint now);
  void EraseIfUnused(TensorHandle handle);
  bool AsScheduled(const NodeTensor& tensor) const;
  PendingTensor Describe(TensorHandle handle) const;

  const NodeSchedulerConfig config_;
  const std::unique_ptr<TensorTable> table_;
  TensorTable& tensors_;
  std::map<std::uint32_t, std::unique_ptr<NodeBucket>> buckets_;  // by channel
  std::unordered_map<OperationId, TensorList> running_;
  std::uint32_t next_negotiated_ = 0;      // sequence on channel 0
  std::vector<TensorHandle> to_announce_;  // may hold tensors that were retracted meanwhile
  std::vector<Action> actions_;
  NodeSchedulerStatus counters_;  // without buckets
  std::uint64_t messages_at_step_start_ = 0;
  TimePoint step_start_;  // when the first tensor of this step became ready
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_NODE_SCHEDULER_H_
