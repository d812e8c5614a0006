// Decides when this node starts which operation of one communicator.
//
// The engine reports what its local ranks submitted and what finished; the scheduler answers with
// actions: start this operation, send this message to the coordinator. A tensor is either
// negotiated (announced to the coordinator, started when it says so) or belongs to a learned bucket,
// which is started without any message as soon as it is full. The protocol, and why it neither
// deadlocks nor pairs wrong operations, is in daemon/schedule/README.md.
//
// Thread safety: none; one thread owns it. Never blocks, reads no clock.
// Ownership: keeps copies of what it is given.
// Invariants:
//   1. A tensor that was reported ready ends in exactly one finished Start or one TensorFailed.
//   2. A started operation makes progress whatever other operations do: the engine must not let one
//      started learned operation (channel > 0) wait for another one to finish, since nodes start
//      them in different orders. Operations of channel 0 are started in the same order everywhere.
//   3. A learned operation changes no byte of its tensors before every node has started it.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_SCHEDULER_H_
#define RINGD_DAEMON_SCHEDULE_NODE_SCHEDULER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/schedule/messages.h"
#include "daemon/schedule/schedule_time.h"
#include "daemon/schedule/tensor_meta.h"
#include "proto/types/ids.h"

namespace ringd {

// A tensor name as this NodeScheduler numbers it; meaningless to others.
using TensorHandle = StrongId<struct TensorHandleTag, std::uint32_t>;
// Shared so that the same list object is handed out for each occurrence of a bucket: the engine may
// compare the pointer to reuse what it computed for it.
using TensorList = std::shared_ptr<const std::vector<TensorHandle>>;

// What the engine has to do, in this order.
struct SendToCoordinator {
  NodeMessage message;
};
struct StartOperation {
  OperationId operation;
  TensorList tensors;
};
// Stop and forget a started operation. Its tensors stay ready; they will be started again as part of
// another operation.
struct CancelOperation {
  OperationId operation;
};
// The tensor's current occurrence ends with this error on all ranks.
struct TensorFailed {
  TensorHandle tensor;
  absl::Status status;
};
// Data that belongs to occurrences from `final_count` on is stale: drop it, also what comes later.
struct ChannelRetired {
  std::uint32_t channel = 0;
  std::uint32_t final_count = 0;
};
using Action = std::variant<SendToCoordinator, StartOperation, CancelOperation, TensorFailed,
                            ChannelRetired>;

struct NodeSchedulerConfig {
  int node_count = 1;    // 1: everything is started at once, no messages
  Rank first_rank{0};    // the node's lowest rank, which speaks for the others in reports
  std::string node_name; // for errors found without a coordinator (node_count 1)

  // A partly filled bucket is broken when the ranks that lack its missing tensors are blocked and
  // this long has passed since its first tensor: max(blocked_patience, 3 x the usual fill time).
  std::chrono::nanoseconds blocked_patience = std::chrono::milliseconds(20);
  // The same whether or not they are blocked: max(late_patience, 10 x the usual fill time). Covers
  // ranks that wait where ringd can't see it.
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

// A tensor that was reported ready and has not ended.
enum class TensorState : std::uint8_t {
  kIdle,       // not ready here
  kAnnounced,  // negotiated: other nodes are not ready yet, or the answer is under way
  kHeld,       // ready, in a learned bucket that lacks other tensors
  kRunning,    // part of a started operation
};

struct PendingTensor {
  TensorHandle tensor;
  TensorState state = TensorState::kIdle;
  TimePoint since;                    // when it became ready here
  std::uint32_t channel = 0;          // of its bucket or operation; 0 when negotiated
  std::vector<TensorHandle> missing;  // kHeld: what the bucket lacks
};

struct NodeBucketStatus {
  std::uint32_t channel = 0;
  std::size_t bytes = 0;
  std::uint32_t occurrences = 0;  // started so far
  std::size_t filled = 0;         // tensors of the next occurrence that are ready
  bool frozen = false;
  std::vector<std::string> tensors;
};

struct NodeSchedulerStatus {
  Epoch epoch = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  // A step, as seen here, ends when a tensor becomes ready a second time. 0 in the steady state.
  std::uint64_t steps = 0;
  std::uint64_t messages_last_step = 0;
  std::uint64_t operations_negotiated = 0;
  std::uint64_t operations_learned = 0;
  std::uint64_t operations_cancelled = 0;
  std::uint64_t breaks_requested[kBreakReasonCount] = {};
  std::vector<NodeBucketStatus> buckets;
};

class NodeScheduler {
 public:
  explicit NodeScheduler(NodeSchedulerConfig config);
  ~NodeScheduler();

  NodeScheduler(const NodeScheduler&) = delete;
  NodeScheduler& operator=(const NodeScheduler&) = delete;

  // The handle for `name`, the same each time until Forget.
  TensorHandle Intern(absl::string_view name);
  const std::string& NameOf(TensorHandle tensor) const;
  // The engine will not use the handle again (until Intern returns it anew, perhaps for another
  // name). The tensor must not be outstanding.
  void Forget(TensorHandle tensor);

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
  // When OnTick may have something to do; nullopt while no bucket is partly filled. While ranks
  // that are absent are not blocked, that time stays in the past: tick every few milliseconds then.
  std::optional<TimePoint> NextTick() const;

  // Appends the actions gathered since the last call. Call it once per batch of inputs: readiness
  // reported in one batch travels as one message.
  void TakeActions(std::vector<Action>& out);

  // For stall reports: tensors that became ready before `ready_before` and have not ended.
  std::vector<PendingTensor> Pending(TimePoint ready_before) const;
  PendingTensor Lookup(absl::string_view name) const;
  NodeSchedulerStatus Status() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_SCHEDULER_H_
