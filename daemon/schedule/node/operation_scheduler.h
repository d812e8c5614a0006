// What decides when a node starts which operation of one communicator, however its operations are
// matched: by name (NodeScheduler), or by order (OrderedScheduler).
#ifndef RINGD_DAEMON_SCHEDULE_NODE_OPERATION_SCHEDULER_H_
#define RINGD_DAEMON_SCHEDULE_NODE_OPERATION_SCHEDULER_H_

#include <cstdint>
#include <optional>
#include <string>
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

// What OnTick asks about the local ranks.
class LocalRankView {
 public:
  virtual ~LocalRankView() = default;

  // True if every local rank that has not submitted the next occurrence of `missing` is blocked,
  // waiting for the completion of something it submitted before.
  virtual bool AbsentRanksAreBlocked(TensorHandle missing) const = 0;
};

// Which of a tensor's occurrences a name means.
struct NamedOccurrence {
  TensorHandle tensor;
  bool has_ended = false;    // here
  std::uint64_t before = 0;  // so many occurrences that have not ended come before it
};

// The engine reports what its local ranks submitted and what finished; the scheduler answers with
// actions.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Invariant: a tensor that was reported ready ends in exactly one finished Start or one
//   TensorFailed.
class OperationScheduler {
 public:
  virtual ~OperationScheduler() = default;

  // The handle for `name`, the same each time.
  virtual TensorHandle Intern(absl::string_view name) = 0;
  // Of a handle's present occurrence.
  virtual std::string NameOf(TensorHandle tensor) const = 0;
  // Nothing if it is unknown.
  virtual std::optional<NamedOccurrence> Find(absl::string_view name) const = 0;
  // Of a tensor that was reported ready and has not ended.
  virtual TensorState StateOf(TensorHandle tensor) const = 0;

  // All local ranks submitted the tensor and agree on `meta`. Its previous occurrence must have
  // ended (OnFinished or TensorFailed). `follows_wait`: see ReadyTensor.
  virtual void OnLocallyReady(TensorHandle tensor, const TensorMeta& meta, bool follows_wait,
                              TimePoint now) = 0;
  // A stream of a local rank waits for an operation that it submitted before what is reported next.
  // So that may not become ready on its GPU before the other is done.
  virtual void OnStreamWait() {}
  // All local ranks submitted the tensor but disagree: one report per local rank. It will end in
  // TensorFailed once every node has submitted it.
  virtual void OnLocalMismatch(TensorHandle tensor, std::vector<RankMeta> reports,
                               TimePoint now) = 0;
  // A started, not cancelled operation has completed on this node.
  virtual void OnFinished(OperationId operation, TimePoint now) = 0;
  // A message of another node's did not fit the started operation, which goes no further here.
  // False: that is no mistake of the ranks', and the communicator must fail.
  [[nodiscard]] virtual bool OnDisagreement(OperationId operation) = 0;

  // Messages must arrive in the order in which the coordinator sent them. An error means that
  // the communicator must fail, its results can't be trusted.
  virtual absl::Status OnMessage(const CoordinatorMessage& message, TimePoint now) = 0;
  // The coordinator asks for this node's description of an operation. An error likewise.
  virtual absl::Status OnInquiry(absl::string_view name) = 0;

  // Call it at NextTick() or later; calling it more often is harmless.
  virtual void OnTick(TimePoint now, const LocalRankView& ranks) = 0;
  // When OnTick has something to look at; nullopt: never, as it stands.
  virtual std::optional<TimePoint> NextTick() const = 0;

  // Appends the actions gathered since the last call. Call it once per batch of inputs: readiness
  // reported in one batch travels as one message.
  virtual void TakeActions(std::vector<Action>& out) = 0;

  // Nodes start it whenever they come to it. If false, all start those in one order, so that they
  // may wait for each other. Its tensors and their descriptions are the same each time.
  virtual bool IsLearned(OperationId operation) const noexcept = 0;
  // A barrier that goes over the wire beside the operation's data, which both must complete before
  // the operation has ended well. Nothing: there is none.
  virtual std::optional<OperationId> GuardOf(OperationId operation) const noexcept = 0;
  // Whose it is that the backend has completed: itself, if it is no guard.
  virtual OperationId OperationOf(OperationId completed) const noexcept = 0;
  // What every message on the wire carries of a description, so that nodes that differ find out;
  // 0: nothing.
  virtual std::uint64_t DigestOf(const TensorMeta& meta) const noexcept = 0;

  // When tensors become ready within the step, if that has changed since the last call.
  virtual std::vector<TensorReadiness> TakeReadiness() = 0;
  virtual NodeSchedulerStatus Status() const = 0;
  virtual Epoch epoch() const = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_OPERATION_SCHEDULER_H_
