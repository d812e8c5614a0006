// Decides when this node starts which operation of a communicator that matches by name.
//
// It answers with actions: start this operation, send this message to the coordinator. A tensor is
// either negotiated (announced to the coordinator, started when it says so) or belongs to a learned
// bucket, which is started without any message as soon as it is full; one of tensors on GPUs when
// the coordinator launches it. The protocol, and why it neither deadlocks nor pairs wrong
// operations, is in daemon/schedule/README.md.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Ownership: keeps copies of what it is given.
// Invariants:
//   1. A tensor that was reported ready ends in exactly one finished Start or one TensorFailed.
//   2. A started operation makes progress whatever other operations do: the engine must not let one
//      started learned operation (channel > 0) wait for another one to finish, since nodes start
//      them in different orders. Operations of channel 0 and those that need a launch are started
//      in the same order everywhere, and not taken back.
//   3. A learned operation changes no byte of its tensors before every node has started it.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_NODE_SCHEDULER_H_
#define RINGD_DAEMON_SCHEDULE_NODE_NODE_SCHEDULER_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/link/measurements.h"
#include "daemon/schedule/node/node_actions.h"
#include "daemon/schedule/node/node_status.h"
#include "daemon/schedule/node/operation_scheduler.h"
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
  std::string of_communicator = {};  // stands behind the errors with which tensors end

  // A partly filled bucket is broken when the ranks that lack one of its tensors have been blocked
  // for this long, and 3 x its usual fill time has passed since its first tensor came.
  std::chrono::nanoseconds blocked_patience = std::chrono::milliseconds(20);
  // The same whether or not they are blocked, after max(late_patience, 10 x the usual fill time):
  // covers ranks that wait where ringd can't see it.
  std::chrono::nanoseconds late_patience = std::chrono::seconds(2);
  // A tensor behind a stream's wait is held back for so long: it may be another operation that the
  // stream waits for, and what has not been launched may wait for this tensor.
  std::chrono::nanoseconds stream_patience = std::chrono::milliseconds(20);
};

class NodeScheduler final : public OperationScheduler {
 public:
  explicit NodeScheduler(NodeSchedulerConfig config);
  ~NodeScheduler() override;

  NodeScheduler(const NodeScheduler&) = delete;
  NodeScheduler& operator=(const NodeScheduler&) = delete;

  TensorHandle Intern(absl::string_view name) override;
  std::string NameOf(TensorHandle tensor) const override;
  std::optional<NamedOccurrence> Find(absl::string_view name) const override;
  TensorState StateOf(TensorHandle tensor) const override;

  void OnLocallyReady(TensorHandle tensor, const TensorMeta& meta, bool follows_wait,
                      TimePoint now) override;
  void OnStreamWait() override { stream_waits_ = true; }
  void OnLocalMismatch(TensorHandle tensor, std::vector<RankMeta> reports, TimePoint now) override;
  void OnFinished(OperationId operation, TimePoint now) override;
  // Nodes start nothing together on which they have not agreed.
  bool OnDisagreement(OperationId /*operation*/) override { return false; }

  // An error means that the coordinator broke the protocol or that a backend broke invariant 3.
  absl::Status OnMessage(const CoordinatorMessage& message, TimePoint now) override;
  absl::Status OnInquiry(absl::string_view name) override;

  // Gives up buckets that stay partly filled. In the usual course of a step NextTick is never
  // reached; it is nullopt while no bucket is partly filled.
  void OnTick(TimePoint now, const LocalRankView& ranks) override;
  std::optional<TimePoint> NextTick() const override;

  void TakeActions(std::vector<Action>& out) override;

  // Channel 0 is negotiated.
  bool IsLearned(OperationId operation) const noexcept override { return operation.channel != 0; }
  std::optional<OperationId> GuardOf(OperationId /*operation*/) const noexcept override {
    return std::nullopt;
  }
  OperationId OperationOf(OperationId completed) const noexcept override { return completed; }
  std::uint64_t DigestOf(const TensorMeta& /*meta*/) const noexcept override { return 0; }

  // Of the tensors of learned buckets. Nothing, unless that of some tensor has changed; one that
  // has come into another bucket counts as changed.
  std::vector<TensorReadiness> TakeReadiness() override;
  NodeSchedulerStatus Status() const override;
  Epoch epoch() const override { return counters_.epoch; }

  // For tests, what StateOf and Find tell in one: tensors that became ready before `ready_before`
  // and have not ended; any one.
  std::vector<PendingTensor> Pending(TimePoint ready_before) const;
  PendingTensor Lookup(absl::string_view name) const;

 private:
  absl::Status Handle(const Execute& execute, TimePoint now);
  absl::Status Handle(const FailTensor& fail, TimePoint now);
  absl::Status Handle(const Schedule& schedule, TimePoint now);
  absl::Status Handle(const Freeze& freeze, TimePoint now);
  absl::Status Handle(const Retire& retire, TimePoint now);
  absl::Status Handle(const Launch& launch, TimePoint now);

  void OnReady(TensorHandle handle, const TensorMeta* meta, std::vector<RankMeta> reports,
               bool follows_wait, TimePoint now);

  absl::Status AdvanceEpoch(Epoch epoch);
  absl::Status AddBucket(const ScheduledBucket& scheduled, TimePoint now);
  absl::Status CancelBeyond(const NodeBucket& bucket, std::uint32_t final_count);

  void Place(TensorHandle handle, TimePoint now);
  void PlaceOrHoldBack(TensorHandle handle, TimePoint now);
  void BreakPartlyFilled(TimePoint now);
  void LetGo(TimePoint now, bool whatever_is_before);
  void Announce(TensorHandle handle);
  void Start(OperationId operation, const TensorList& tensors);
  void StartIfFull(NodeBucket& bucket);
  void RequestBreak(NodeBucket& bucket, BreakReason reason,
                    const std::vector<TensorHandle>& tensors);
  void FailTensorNow(TensorHandle handle, absl::string_view error);
  void Send(NodeMessage message);
  void CountStep(NodeTensor& tensor, TimePoint now);
  void WithdrawOutOfUse(TimePoint now);
  void EraseIfUnused(TensorHandle handle);
  bool AsScheduled(const NodeTensor& tensor) const;
  PendingTensor Describe(TensorHandle handle) const;

  const NodeSchedulerConfig config_;
  const std::unique_ptr<TensorTable> table_;
  TensorTable& tensors_;
  std::map<std::uint32_t, std::unique_ptr<NodeBucket>> buckets_;  // by channel
  std::set<std::uint32_t> filling_;  // those of which some tensors are here, and not all
  std::unordered_map<OperationId, TensorList> running_;
  std::uint32_t next_negotiated_ = 0;  // sequence on channel 0
  bool stream_waits_ = false;
  // Tensors that need a launch, are placed, and have been started by no operation.
  std::size_t unlaunched_ = 0;
  std::deque<TensorHandle> held_back_;     // in their order, behind those
  TimePoint held_back_until_;              // unless a departure is being settled
  std::vector<TensorHandle> to_announce_;  // may hold tensors that were retracted meanwhile
  std::vector<Action> actions_;
  NodeSchedulerStatus counters_;  // without buckets
  std::uint64_t messages_at_step_start_ = 0;
  TimePoint step_start_;  // when the first tensor of this step became ready
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_NODE_SCHEDULER_H_
