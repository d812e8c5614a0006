// This node's part in one communicator: takes the local ranks' submissions, lets the scheduler
// decide, has its lane carry them out, and completes every submission exactly once. The ranks of
// one node do all that themselves (NodeLane); what is left is names, counting, and knowing who
// waits for whom. Tensors in device memory go the first way in both.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_JOB_COMMUNICATOR_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_JOB_COMMUNICATOR_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/communicator.h"
#include "daemon/execution/execution.h"
#include "daemon/execution/reducers.h"
#include "daemon/jobs/communicator/fifo_queue.h"
#include "daemon/jobs/communicator/meta_numbers.h"
#include "daemon/jobs/communicator/operation_trace.h"
#include "daemon/jobs/communicator/rate_window.h"
#include "daemon/jobs/membership/coordinator_link.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/lanes/device/device_lane.h"
#include "daemon/lanes/device/device_room.h"
#include "daemon/lanes/lane.h"
#include "daemon/lanes/node/local_group.h"
#include "daemon/lanes/waiting_submission.h"
#include "daemon/logging/log.h"
#include "daemon/schedule/node/node_scheduler.h"
#include "daemon/schedule/node/operation_scheduler.h"
#include "daemon/sessions/isolated_executor.h"
#include "daemon/sessions/session.h"
#include "proto/base/clock.h"
#include "proto/rpc/trace.pb.h"

namespace ringd {

// What DescribeInFlight says then.
inline constexpr absl::string_view kNothingInFlight = "with nothing in flight";

struct JobCommunicatorCounters {
  std::uint64_t tensors = 0;        // submissions completed well
  std::uint64_t operations = 0;     // collectives finished well
  std::uint64_t payload_bytes = 0;  // of those, once per node
  std::uint64_t busy_ns = 0;        // time with at least one operation under way
};

// Thread safety: none; the progress thread owns it.
// Ownership: holds the sessions as long as an execution may touch their arenas.
// Invariants:
//   1. A submission accepted by Submit ends in exactly one Session::Complete.
//   2. After Fail(), everything in flight has been completed with its status, and so is whatever
//      comes later; memory stays mapped until the backend has let go of it (see Idle). If a reducer
//      is amid a piece just then, that is when it has ended: nothing is written to a rank that has
//      heard of the failure.
class JobCommunicator final : private LocalRankView, private LaneEvents {
 public:
  struct Options {
    CommunicatorId id;
    std::uint32_t number = 0;  // within the job; 0: all ranks
    std::string name = {};     // empty: all ranks
    bool by_order = false;     // its operations are matched by order
    std::string job_id;        // for the log
    NodeSchedulerConfig scheduler;
    Reducers* reducers = nullptr;  // null: there are none; else must outlive this
    // For turns on what members hold, too, and its end; null: here. Must outlive this.
    IsolatedExecutor* isolated = nullptr;
    // For tensors in device memory; null: there are none. Must outlive this.
    DeviceRoom* devices = nullptr;
    // Of one besides that of all ranks: where its operations are noted; null: they are not. Must
    // be there until Fail, or until this ends.
    OperationTrace* trace = nullptr;
    // Whether a rank of the job, on any node, has left in order. What it borrows must outlive this.
    std::function<bool(Rank)> has_left = [](Rank) { return false; };
    std::vector<int> positions;  // then: of the members, among those of the job on this node
    // Whether a rank of the job has an earlier job's NCCL communicator still
    // (DeviceAgreement::HasKept). What it borrows must outlive this.
    std::function<bool(Rank, absl::string_view unique_id, std::uint64_t launched)> has_kept =
        [](Rank, absl::string_view, std::uint64_t) { return false; };
    std::chrono::nanoseconds connect_patience{};   // DeviceLane::Options'
    std::chrono::nanoseconds operation_timeout{};  // likewise
  };

  // How the ranks' data comes together: over several nodes, or in memory that they share.
  using Way = std::variant<std::unique_ptr<Communicator>, std::unique_ptr<LocalGroup>>;

  // `members` by local rank. `link` must outlive this.
  JobCommunicator(Options options, std::shared_ptr<const Membership> membership,
                  std::vector<std::shared_ptr<Session>> members, Way way, CoordinatorLink* link);
  ~JobCommunicator() override;

  CommunicatorId id() const noexcept { return options_.id; }
  const std::string& name() const noexcept { return options_.name; }
  const Membership& membership() const noexcept { return *membership_; }

  // Completes a checked description with this communicator's numbers for its name and meta.
  //   kResourceExhausted: there are no numbers left.
  //   kInvalidArgument: its parts are not these ranks'.
  absl::Status Number(Registration& registration) {
    return Number(registration, MetaKey(registration.meta));
  }
  // `meta_key` is that of its meta.
  absl::Status Number(Registration& registration, const std::string& meta_key);
  // Once for each description that was numbered, when its session does not hold it any more. The
  // number of its name stays.
  void Release(const Registration& registration) noexcept;
  // What names that were numbered, and metas that are held, take of ringd's memory.
  std::uint64_t table_bytes() const noexcept { return table_bytes_; }

  // In what the members' descriptions of a tensor differ; `metas` by member, as the members say.
  absl::StatusOr<std::string> DescribeMismatch(std::uint32_t tensor,
                                               std::span<const std::uint32_t> metas) const;

  // From local member number `member`. Never blocks.
  void Submit(int member, const CheckedSubmission& submission, Clock::time_point now);

  // A scheduling message of the coordinator. An error means the communicator must fail.
  absl::Status OnMessage(const CoordinatorMessage& message, Clock::time_point now);

  // Matching by order: how does this node describe the operation? The coordinator asks. An error
  // means the communicator must fail.
  absl::Status OnOrderInquiry(const std::string& name);
  bool by_order() const noexcept { return options_.by_order; }

  // How the ranks' NCCL communicators find each other: what one of the nodes has made; and whether
  // they register memory (v1::DeviceId).
  //   kInvalidArgument: it is none.
  absl::Status TakeDeviceId(const v1::DeviceId& id);

  // Advances everything a bit; returns the amount of work done. An error means it must fail.
  absl::StatusOr<std::size_t> Advance(Clock::time_point now);
  // Copies a piece of a result to its ranks, in place of a reducer: for whoever has nothing else to
  // do. False if there is none.
  bool CopyPiece();
  // Waits for reducers, for a piece's pass, and completes what Fail() had to put off. For the very
  // end, and for a member that leaves.
  void Settle();
  // When Advance wants to be called even if nothing happens.
  std::optional<Clock::time_point> NextTick(Clock::time_point now) const;
  // The nodes have opened a rank exchange: hands it to the members. `connections` by node, the own
  // one's place empty.
  //   What the kernel says: then there is none.
  absl::Status OpenRankExchange(std::vector<UniqueFd> connections) {
    return lane_->OpenRankExchange(std::move(connections));
  }
  // Null: there is none.
  const RankExchangeWatch* rank_exchange() const noexcept { return lane_->rank_exchange(); }

  // Looks at what goes on without ringd's doing. Call it every now and then.
  void Look(Clock::time_point now) { lane_->Look(now); }

  // Ends all that is in flight, and all to come, with `cause`. Idempotent: the first cause stays.
  void Fail(const absl::Status& cause);
  bool failed() const noexcept { return !failure_.ok(); }

  // The member leaves: its submissions end with kCancelled, and its memory is not touched any more.
  // An operation that is started with one of them later fails the communicator (see Advance).
  // False: nothing was done, since an operation that has been started uses its memory. Then the
  // communicator must fail, and settle, before the member hears that it has left.
  [[nodiscard]] bool Leave(int member);
  // The name of a tensor of which a submission of the member has not ended; nothing if there is
  // none.
  std::optional<std::string> InFlightOf(int member) const;
  // True if other nodes may start what a member that has left can't take part in any more.
  bool HasWithdrawn() const noexcept { return withdrawn_ && !failed(); }

  // True if no submission is waiting and nothing touches any arena.
  bool Idle() const noexcept { return Quiet() && waiting_ == 0 && lane_->RanksRest(); }
  // True if nothing touches any arena, so that it may be destroyed.
  bool Quiet() const noexcept { return lane_->Quiet() && DevicesRest(); }
  // Tensors on GPUs of members that could use NCCL go by the host path all the same, since `why`.
  void NoteHostPath(const std::string& why);
  // Of the GPUs of its members here, once tensors have been in device memory (DeviceLane).
  std::vector<DeviceLane::Description> DescribeDevices() const;

  // Since when the oldest has been waiting of those that came before `before`. Where the ranks
  // combine their tensors themselves it is known at once, from the last looks.
  std::optional<Clock::time_point> WaitingSince(Clock::time_point before) const;
  // Submissions that came before `before` and have not ended, by member, the oldest first; of each
  // member at most `most`, the oldest. Where the ranks combine their tensors themselves, as many as
  // LocalGroup reads. `all` becomes false if some are left out.
  std::vector<WaitingSubmission> Waiting(Clock::time_point before, std::size_t most,
                                         bool& all) const;
  std::vector<WaitingSubmission> Waiting(Clock::time_point before) const {
    bool all = true;
    return Waiting(before, SIZE_MAX, all);
  }
  // "while 2 tensors were in flight ('a', 'b')", by which is meant: submitted by some local rank;
  // or "with nothing in flight".
  std::string DescribeInFlight() const;
  // Positions of the local members that have not submitted the tensor's present occurrence, or, if
  // all have, of those that have not copied all of it into their arenas.
  std::vector<int> MembersWithout(const std::string& tensor) const;
  // Whether all have submitted it.
  bool AllHaveSubmitted(const std::string& tensor) const {
    return lane_->AllHaveSubmitted(tensor, MembersWithoutSubmission(tensor));
  }

  // Whether GPUs are at it; and, if so, which members' streams have not come to it for some time.
  bool IsOnDevice(const std::string& tensor) const {
    return FindOnDevice(tensor) != device_running_.end();
  }
  std::vector<int> MembersNotReady(const std::string& tensor) const;
  // Whether the member's own process launches what its GPU does.
  bool LaunchesItself(int member) const;

  // Where the times of operations are noted (TraceReading reads them): the engine's ring first,
  // then one of each member, whose own word it is.
  std::size_t trace_ring_count() const noexcept { return 1 + members_.size(); }
  // Requirement: `ring` is below their count. Its header may be null: nothing has been noted.
  TraceRingView trace_ring(std::size_t ring) const noexcept {
    return ring == 0 ? trace_.ring() : members_[ring - 1]->trace_ring();
  }
  OperationTrace& trace() noexcept { return trace_; }
  // Of a rank's event: it may be what the library writes. No more is known, and no more needed to
  // show it.
  bool IsCredible(const TraceEvent& event, std::uint64_t now_ns) const;
  // Of the tensor with this number in events; empty: there is none, or it is an operation that is
  // matched by order.
  std::string NameOfTraced(std::uint32_t tensor) const;
  // Of a communicator besides that of all ranks: which of the job's ranks on this node it has, by
  // position.
  const std::vector<int>& traced_members() const noexcept { return options_.positions; }
  bool HasTracedMember(int position) const noexcept {
    return std::find(options_.positions.begin(), options_.positions.end(), position) !=
           options_.positions.end();
  }

  JobCommunicatorCounters counters() const noexcept;
  // How a one-node job's ranks get at each other's ordinary memory; else empty.
  std::string OrdinaryMemory() const { return lane_->OrdinaryMemory(); }
  MemberCounters CountersOf(int member) const noexcept;
  bool CombinesLocally() const noexcept { return lane_->CombinesLocally(); }
  // Advance has something to do: not if the ranks do all themselves.
  bool NeedsAdvance() const noexcept { return !CombinesLocally() || has_device_tensors_; }
  NodeSchedulerStatus SchedulerStatus() const { return scheduler_->Status(); }
  CommunicatorStatistics WireStatistics() const { return lane_->Statistics(); }
  // Grows, or differs, as long as something goes on: what has come from other nodes; while GPUs are
  // at work, whose data nobody counts, how much they have ended.
  std::uint64_t Progress() const;
  ChannelTime TimeOf(std::uint32_t channel) const { return lane_->TimeOf(channel); }
  double BytesPerSecond(Clock::time_point now) const;
  double OperationsPerSecond(Clock::time_point now) const;
  double BusyShare(Clock::time_point now) const;

  // The node whose connections for data have ended, if the backend has seen that and not all of its
  // ranks have left before; else null. Valid as long as the membership.
  const MemberNode* LostNode() const;

 private:
  struct Queued {
    CheckedSubmission submission;
    Clock::time_point since;
  };
  struct Tensor {
    std::vector<FifoQueue<Queued>> queues;  // by member
    int members_ready = 0;                  // queues that are not empty
    bool outstanding = false;               // reported to the scheduler, not ended
  };
  struct DeviceRunning {
    TensorList tensors;
    std::uint64_t payload_bytes = 0;
  };
  using RunningOnDevice = std::unordered_map<OperationId, DeviceRunning>;
  struct CachedLayout {
    TensorList tensors;  // compared by pointer: the scheduler hands out the same list for a bucket
    std::shared_ptr<const BucketLayout> layout;
  };

  // True if no GPU is at work for it.
  bool DevicesRest() const noexcept {
    return device_running_.empty() && (device_lane_ == nullptr || device_lane_->Quiet());
  }

  RunningOnDevice::const_iterator FindOnDevice(const std::string& tensor) const;

  std::unique_ptr<Lane> MakeLane(Way way);
  void OnMoved(OperationId id, const Completion& completion) override {
    trace_.OnMoved(id, completion);
  }
  void OnGivenUp(OperationId id, Clock::time_point now) override { trace_.OnCancelled(id, now); }
  void OnFinished(const Execution& done, Clock::time_point now) override;
  const TensorMeta* FindMeta(std::uint32_t meta_id) const override { return metas_.Find(meta_id); }
  // Whether the engine carries operations on this tensor out, and not the ranks.
  bool IsCarriedHere(const Registration& registration) const noexcept {
    return !CombinesLocally() || registration.meta.place == TensorPlace::kDevice;
  }
  // The number of its name, of which there are two kinds if the ranks combine what is on the host.
  absl::StatusOr<std::uint32_t> NumberName(const Registration& registration);
  void ReleaseName(const Registration& registration) noexcept;
  // An error if a rank has submitted a tensor on the host that another has on a GPU, where they
  // would wait for each other.
  absl::Status CheckPlaces(Clock::time_point now);
  void AddQueued(Clock::time_point before, std::size_t most, bool& all,
                 std::vector<WaitingSubmission>& waiting) const;
  std::vector<int> MembersWithoutSubmission(const std::string& tensor) const;
  // Requirement: all have submitted it.
  std::vector<int> MembersInTheMiddleOf(const std::string& tensor) const;
  bool AbsentRanksAreBlocked(TensorHandle missing) const override;
  bool TakesPartInRunning(std::size_t member) const;
  // An error, which names the rank, if one has left that had submitted one of the tensors.
  absl::Status CheckNobodyLeft(const StartOperation& start) const;
  Tensor& TensorOf(TensorHandle handle);
  // As the first member has described it. Requirement: all have submitted it.
  const Registration& HeadOf(TensorHandle handle) const {
    return *tensors_[handle.value()].queues.front().front().submission.registration;
  }
  // In the trace: the tensor's present occurrence ends so.
  void NoteFailure(TensorHandle handle, const absl::Status& status, Clock::time_point now);
  void ReportIfReady(TensorHandle handle, Clock::time_point now);
  // False: there were none.
  absl::StatusOr<bool> TakeActions(Clock::time_point now);
  absl::Status Start(const StartOperation& start, Clock::time_point now);
  // A started operation whose tensors are in device memory.
  void StartOnDevice(const StartOperation& start, const BucketLayout& layout,
                     Clock::time_point now);
  DeviceLane& OpenDeviceLane();
  absl::StatusOr<std::size_t> AdvanceDevice(Clock::time_point now);
  // Ends all submissions with the failure, unless reducers linger: until they don't.
  void CompleteFailed();
  std::shared_ptr<const BucketLayout> LayoutOf(const StartOperation& start);
  void CompleteTensor(TensorHandle handle, const absl::Status& status);
  // Ends the tensors that have failed, unless reducers linger.
  void EndFailedTensors(Clock::time_point now);
  absl::StatusOr<std::size_t> AdvanceLane(Clock::time_point now);
  bool HasTraced(std::uint32_t tensor) const noexcept;
  LogFields Fields() const;
  void Send(v1::NodeMessage message);
  // " of communicator 'x'", or nothing if it is the one of all ranks.
  std::string OfCommunicator() const;
  absl::Status DescribeHealth() const;
  // Operations are under way on this node.
  bool Busy() const noexcept { return lane_->Busy() || !device_running_.empty(); }
  void CountBusy(Clock::time_point now) noexcept;
  void ReportMeasurements(Clock::time_point now);

  Options options_;
  std::shared_ptr<const Membership> membership_;
  const RanksByNode ranks_;
  std::vector<std::shared_ptr<Session>> members_;
  std::vector<bool> has_left_;  // by member
  // By member: CheckedSubmission::stream_waits of what it had reported last.
  std::vector<std::uint64_t> stream_waits_;
  bool withdrawn_ = false;
  CoordinatorLink* link_;
  const std::unique_ptr<OperationScheduler> scheduler_;
  std::vector<TensorFailed> failed_tensors_;  // of which nobody has heard so far
  std::vector<Action> actions_;

  MetaNumbers metas_;
  std::vector<bool> numbered_;  // by TensorHandle
  std::uint64_t table_bytes_ = 0;
  std::vector<Tensor> tensors_;                              // by TensorHandle
  std::unordered_map<std::uint32_t, CachedLayout> layouts_;  // by channel

  std::unique_ptr<Lane> lane_;  // of tensors in host memory

  bool has_device_tensors_ = false;
  bool has_tensors_by_host_ = false;
  std::string why_by_host_;  // empty: by those that can use NCCL only where it lacks their type
  Clock::time_point places_checked_;
  absl::Status start_failure_;  // of an operation that a message has started: for Advance
  std::optional<DeviceLane::Id> device_id_;
  std::unique_ptr<DeviceLane> device_lane_;  // from the first operation on that needs it
  RunningOnDevice device_running_;
  std::uint64_t device_ended_ = 0;

  OperationTrace trace_;

  absl::Status failure_;
  std::size_t waiting_ = 0;  // submissions that have not ended
  JobCommunicatorCounters counters_;
  Clock::time_point busy_since_;
  Clock::time_point next_sample_;  // of the rates
  RateWindow bytes_rate_;
  RateWindow operations_rate_;
  RateWindow busy_rate_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_JOB_COMMUNICATOR_H_
