// One process's place in one job: what a ringd_context points to.
#ifndef RINGD_CLIENT_CORE_CONTEXT_H_
#define RINGD_CLIENT_CORE_CONTEXT_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/core/attach/attachment.h"
#include "client/core/attach/control_channel.h"
#include "client/core/attach/fork_guard.h"
#include "client/core/attach/lifeline.h"
#include "client/core/attach/ringd_watch.h"
#include "client/core/attach/session_state.h"
#include "client/core/lanes/device/device_memory.h"
#include "client/core/lanes/device/device_staging.h"
#include "client/core/lanes/device/host_path.h"
#include "client/core/lanes/device/launch_patience.h"
#include "client/core/lanes/device/launch_servant.h"
#include "client/core/lanes/device/slab_inbox.h"
#include "client/core/lanes/device/timeline_pairs.h"
#include "client/core/lanes/node/background_helper.h"
#include "client/core/lanes/node/job_memory.h"
#include "client/core/lanes/node/local_operations.h"
#include "client/core/lanes/node/node_lanes.h"
#include "client/core/lanes/rank_exchange/rank_exchange_memory.h"
#include "client/core/lanes/rank_exchange/rank_exchange_operations.h"
#include "client/core/lanes/rank_exchange/unended_operations.h"
#include "client/core/lanes/wire/ringd_operations.h"
#include "client/core/lanes/wire/wire_lane.h"
#include "client/core/options.h"
#include "client/core/tensors/arena.h"
#include "client/core/tensors/ordered_descriptions.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staged_copies.h"
#include "client/core/tensors/staging.h"
#include "client/core/waiting/presence.h"
#include "client/core/waiting/trace_sink.h"
#include "client/core/waiting/wait_lists.h"
#include "client/ringd.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// Wires the parts together; each method is the body of the ringd_ function of its name, and ringd.h
// says what it does.
//
// Thread safety: any method from any thread; destruction last.
// Ownership: owns everything of the session; what ringd_arena_alloc handed out goes with it.
class Context {
 public:
  // Attaches and joins. Blocks until all ranks are there. Without a ringd the rank works alone, if
  // options.may_be_alone.
  static absl::StatusOr<std::unique_ptr<Context>> Open(const Options& options);
  // Leaves the job. Blocks kCloseDeadline at most.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  static constexpr std::chrono::milliseconds kCloseDeadline{1800};

  // Ends this rank's part in the job: kLeave tells ringd so, kAbandon lets it look like a death, of
  // which all other ranks are told; if `failure` is not empty, as that, ringd_abandon_because's.
  // Calls under way return and later ones fail with kCancelled; arena memory stays. Blocks
  // kCloseDeadline at most. Only the first call counts; others wait until it has got so far.
  enum class Farewell : bool { kLeave, kAbandon };
  void EndPart(Farewell farewell, absl::string_view failure = {});

  // True in a forked child, where nothing but destruction of other things is allowed.
  bool InForkedChild() const noexcept { return fork_guard_.InChild(); }

  const Places& places() const noexcept { return places_; }
  const JoinedPlace& joined() const noexcept { return joined_; }
  Arena& arena() noexcept { return arena_; }

  absl::StatusOr<ringd_communicator> CreateCommunicator(const ringd_communicator_options& options);
  absl::Status DestroyCommunicator(ringd_communicator communicator);
  absl::StatusOr<ringd_communicator_place> PlaceIn(ringd_communicator communicator) const;

  absl::Status Register(const ringd_tensor* tensors, std::size_t count,
                        ringd_registration* registrations);

  absl::Status Unregister(std::span<const ringd_registration> registrations);

  absl::Status Submit(ringd_registration registration, const void* source, void* destination,
                      WhenFull when_full, ringd_operation* operation);
  absl::Status SubmitAwaited(ringd_registration registration, const void* source, void* destination,
                             ringd_operation* operation);
  absl::Status SubmitInOrder(ringd_communicator communicator, const ringd_collective& collective,
                             const void* source, void* destination, ringd_operation* operation);
  absl::Status OpenDevice(const ringd_device_options& options);
  absl::StatusOr<void*> DeviceAllocate(std::size_t bytes);
  absl::Status DeviceFree(const void* address);
  absl::Status SubmitOnStream(ringd_registration registration, const void* source,
                              void* destination, void* stream, ringd_operation* operation);
  absl::Status StreamWait(ringd_operation operation, void* stream);
  absl::Status Ping(std::int64_t timeout_ms);
  absl::Status Test(ringd_operation operation, bool& done);
  absl::Status Wait(ringd_operation operation, std::int64_t timeout_ms);
  absl::Status WaitAll(std::span<ringd_operation> awaited, std::int64_t timeout_ms);

 private:
  Context(const Options& options, Attachment attachment, std::unique_ptr<ControlChannel> control);

  static absl::StatusOr<std::unique_ptr<Context>> OpenAlone(const Options& options);
  absl::Status Join(const Options& options);
  absl::Status StartLifeline(const Options& options);
  // `status` of a call; if the session has ended meanwhile, or ringd is silent, the reason for it.
  absl::Status Explain(const absl::Status& status);
  OperationQueue& operations() const noexcept {
    return lane_of_all_ranks_.load(std::memory_order_acquire)->queue();
  }
  // Whose operation this is, of those that have a queue; null: nobody's.
  OperationQueue* QueueOf(ringd_operation operation) noexcept {
    const std::uint32_t tag = NodeLanes::TagOf(operation);
    if (tag == 0) return &operations();
    if (tag == NodeLanes::kRingdsTag) return &ringd_operations_;
    if (tag == NodeLanes::kHostPathTag) return host_path_now_.load(std::memory_order_acquire);
    return node_lanes_.Find(operation);
  }
  static constexpr std::uint64_t SequenceOf(ringd_operation operation) noexcept {
    constexpr ringd_operation kTag = ringd_operation{NodeLanes::kRingdsTag} << NodeLanes::kTagShift;
    return (operation & ~kTag) - 1;
  }
  // One communicator as this rank sees it.
  struct Communicator {
    std::string name;
    std::vector<std::int32_t> ranks;
    ringd_communicator_place place{};
    LaneUse lane;
    std::unique_ptr<OrderedDescriptions> ordered;  // null: its operations are matched by name
  };
  LaneUse LaneOfAllRanks() noexcept;
  absl::StatusOr<LaneUse> OpenLane(const MadeCommunicator& made, bool by_order);
  // Of one that ringd has made and that can't be used here: gives it back.
  void ForgetCommunicator(const MadeCommunicator& made);
  absl::Status CheckAsked(const AskedCommunicator& asked) const;
  // What a tensor has to know of its communicator, of which its root must be a rank. On a GPU it
  // goes through ringd in all of them, or by the host path, which is noted as its place then.
  absl::StatusOr<LaneUse> LaneFor(TensorDescription& tensor);
  absl::StatusOr<LaneUse> CommunicatorLaneFor(const TensorDescription& tensor);
  absl::Status RegisterUnknown(std::vector<TensorDescription> unknown,
                               std::span<const std::size_t> positions,
                               std::span<ringd_registration> numbers);
  // An operation of one of the registrations that has not been taken out; null: there is none.
  const Registration* FindUsed(const std::unordered_set<const Registration*>& registrations);
  absl::Status UseLocalOperations(const Options& options);
  absl::Status UseRankExchange();
  absl::StatusOr<Registration*> FindRegistration(ringd_registration registration);
  // True of what only unended_operations_ knows.
  bool IsUnended(ringd_operation operation) const noexcept {
    return unended_operations_ != nullptr && UnendedOperations::IsOne(operation);
  }
  absl::Status WaitForUnended(ringd_operation operation, std::int64_t timeout_ms);
  // Until EndPart, in another thread, has ended this rank's part.
  void AwaitLeft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(part_mutex_);
  // Takes a ping out once it has been answered; keeps one that is late.
  absl::Status AwaitPing(std::uint64_t sequence, Clock::time_point deadline,
                         std::int64_t timeout_ms) ABSL_LOCKS_EXCLUDED(pings_mutex_);
  std::optional<std::uint64_t> TakeLatePing() ABSL_LOCKS_EXCLUDED(pings_mutex_);
  // Waits until it is no longer in the rank exchange, or until the deadline. What is at ringd then
  // is replaced by its number there, what has ended well by RINGD_DONE.
  UnendedOperations::Where AwaitUnended(ringd_operation& operation, Clock::time_point deadline);
  // Consumes operations that have failed: each becomes 0. The first one's status.
  absl::Status ConcludeFailed(std::span<ringd_operation* const> failed);
  // Submit, once the registration has been found.
  absl::Status SubmitFound(Registration& tensor, const void* source, void* destination,
                           WhenFull when_full, ringd_operation* operation);
  // Before a tensor's next operation: those before it are where ranks match them by their order.
  // Requirement: unended_operations_ is there.
  //   kResourceExhausted: one is not, and `when_full` says not to wait.
  absl::Status SettleEarlier(const Registration& tensor, WhenFull when_full);
  // What the rank exchange has given up; it has been counted.
  absl::Status SubmitGivenUp(const RankExchangeStay& stay, WhenFull when_full,
                             ringd_operation* operation);
  // Into the queue of operations.
  absl::Status Enqueue(Registration& tensor, const void* source, void* destination,
                       WhenFull when_full, ringd_operation* operation);
  // kFailedPrecondition: none has been opened.
  absl::StatusOr<const CudaContext*> Gpu() const noexcept;
  // Of a context that has a GPU: where device memory is given out, and tensors are reduced unless
  // they go by the host path.
  absl::StatusOr<DeviceMemory*> Device();
  absl::Status OpenGpuAndMemory(const ringd_device_options& options);
  absl::StatusOr<std::unique_ptr<DeviceMemory>> TakeSlab(std::shared_ptr<const CudaContext> gpu,
                                                         const OpenedDevice& opened,
                                                         std::unique_ptr<LaunchServant> servant);
  // All of this context's device tensors go by the host path; `why`: nothing if that was asked for.
  absl::Status UseHostPath(const std::string& why);
  // Makes it if that has not been done.
  absl::StatusOr<HostPath*> OpenHostPath() ABSL_LOCKS_EXCLUDED(host_path_mutex_);
  // Whether a tensor in device memory goes by it; says so the first time that NCCL is the reason.
  // `communicator`: ringd's number of the tensor's. Where this rank could use NCCL, waits for word
  // of the communicator's other ranks, once for each communicator.
  absl::StatusOr<bool> GoesByHost(const TensorDescription& tensor, std::uint32_t communicator);
  absl::StatusOr<bool> AgreeOnHostPath(ringd_communicator communicator, std::uint32_t at_ringd)
      ABSL_LOCKS_EXCLUDED(host_path_mutex_);
  // Of a context whose tensors all go by it: ordinary device memory to give out.
  absl::StatusOr<DeviceMemory*> HeapOfHostPath() ABSL_LOCKS_EXCLUDED(host_path_mutex_);
  absl::StatusOr<OpenedDevice> AskForDevice(const CudaContext& gpu, std::uint64_t slab_bytes);
  // This process can't use its GPU: ranks that can don't wait for it.
  void TellNoGpu(const absl::Status& why);
  void SetLaunchServant(LaunchServant* servant) ABSL_LOCKS_EXCLUDED(opening_servant_mutex_);
  // On the lifeline's thread.
  void BeginLaunching(UniqueFd socket) ABSL_LOCKS_EXCLUDED(opening_servant_mutex_);
  // What is left to do for operations that have been consumed and have ended well. A GPU that fails
  // at that ends this rank's part.
  absl::Status Finish(std::span<const OperationEnd> ends);
  // Goes on to a pair that may be used or is in flight. False: there is none.
  bool StreamsAreDone(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(timeline_pairs_mutex_);
  bool FindTimelinePair() ABSL_EXCLUSIVE_LOCKS_REQUIRED(timeline_pairs_mutex_);
  absl::Status SubmitOnDevice(Registration& tensor, const void* source, void* destination,
                              void* stream, ringd_operation* operation);
  // Into the submission ring, with a pair of the timeline; waits for room.
  absl::Status EnqueueOnDevice(Submission& record, OperationEnd& end);
  // Until the result is on a stream of this process, which launches (LaunchedValues). For
  // launch_patience_ms_ at most.
  //   kCancelled: interrupted.
  absl::Status AwaitLaunch(std::uint32_t pair, std::uint64_t sequence);
  // The context has ended: no stream waits for a result any more. Any thread.
  void ReleaseStreams() noexcept;
  // Where the session has ended: whoever wakes the waiters releases the streams that wait for this
  // operation. False: it is not one of them.
  bool LeaveToBeReleased(std::uint64_t sequence) ABSL_LOCKS_EXCLUDED(unreleased_mutex_);
  void WakeWaiters() noexcept;
  // Those, too, who join and wait for memory.
  void WakeAll();
  // Whether some thread waits for an operation. Any thread.
  bool AnyWaiter() const noexcept;
  // Once a second, on the lifeline's thread: says it when ringd is silent and somebody waits. Of a
  // session that has been lost meanwhile it releases whoever waits for anything, streams included.
  void WatchRingd(Clock::time_point now);
  RingdWatch::Verdict WatchCalls(bool in_call, Clock::time_point now);
  absl::Status Conclude(OperationQueue& queue, ringd_operation operation);
  // Of an operation that has ended badly.
  absl::Status DescribeFailure(const OperationOutcome& outcome, const Registration& registration);
  // Why the local ranks' descriptions of this tensor can't be combined.
  absl::Status DescribeMismatch(const Registration& registration,
                                const std::vector<std::uint32_t>& metas);
  std::string RingdName() const;
  // "ringd (pid 7) on node-a has not answered for 3 s (its engine, pid 9, is stopped)"; without the
  // engine, if that is not the one that is silent.
  std::string DescribeSilence(std::int64_t seconds) const;

  // Written before the lifeline's thread runs.
  std::function<void(const std::string& text)> on_warning_;
  const Places places_;
  bool alone_ = false;  // there is no ringd; written once, by OpenAlone
  const std::int32_t ringd_pid_;
  const std::chrono::nanoseconds spin_budget_;
  const DirectReading direct_reading_;
  const std::uint32_t submission_capacity_;
  JoinedPlace joined_;  // immutable once Open has returned
  mutable Mutex node_name_mutex_;
  std::string node_name_ ABSL_GUARDED_BY(node_name_mutex_);

  const MemoryMapping segment_;
  TraceSink trace_;  // in it
  SessionState state_;
  Arena arena_;
  Registrations registrations_;
  StagedCopies staged_copies_;
  Staging staging_;
  ArenaMappings arena_mappings_;
  JobMemory job_memory_;
  NodeLanes node_lanes_;
  RingdOperations ringd_operations_;
  WireLane wire_lane_;
  // Of a one-node job, from the end of Open on; else null.
  std::unique_ptr<LocalOperations> local_operations_;
  std::optional<NodeLane> node_lane_;  // likewise
  // Whichever carries this job's operations out, but for those in the rank exchange.
  std::atomic<Lane*> lane_of_all_ranks_{&wire_lane_};
  std::unique_ptr<BackgroundHelper> background_helper_;  // null if there shall be none
  RankExchangeMemory rank_exchange_memory_;
  // Of a job over several nodes that has a rank exchange, from the end of Open on; else null.
  std::unique_ptr<RankExchangeOperations> rank_exchange_operations_;
  std::unique_ptr<UnendedOperations> unended_operations_;  // likewise
  // Local operations and rank exchange, for the lifeline's thread, which runs before they are
  // there.
  std::atomic<const LocalOperations*> watched_local_{nullptr};
  std::atomic<const RankExchangeOperations*> watched_rank_exchange_{nullptr};
  std::atomic<std::uint32_t> calls_{0};  // threads that wait for ringd's answer to a call
  std::atomic<std::uint32_t> operation_timeout_ms_{0};
  std::atomic<std::int32_t> engine_pid_{0};  // as ringd sees it; relaxed: a number
  std::atomic<std::int64_t> silence_s_{0};   // ringd's or the engine's, where it is long
  std::atomic<bool> engine_is_silent_{false};
  // Of the lifeline's thread: the engine, while somebody waits, and ringd, while a call does.
  RingdWatch watch_;
  RingdWatch call_watch_;
  bool has_woken_lost_ = false;  // of that thread, too: it has called WakeAll of a lost session
  // A call has been without an answer just before.
  std::atomic<Clock::time_point> asks_for_mismatches_from_{Clock::time_point::min()};
  Mutex pings_mutex_;
  // In flight when their callers' time was over: at most as many as threads have pinged at once.
  std::vector<std::uint64_t> late_pings_ ABSL_GUARDED_BY(pings_mutex_);
  mutable Mutex communicators_mutex_;
  std::map<ringd_communicator, Communicator> communicators_ ABSL_GUARDED_BY(communicators_mutex_);
  // Names of those that were asked for in vain. They may have been made all the same.
  std::set<std::string> missed_communicators_ ABSL_GUARDED_BY(communicators_mutex_);
  const std::string cuda_library_;
  const std::string nccl_library_;
  const bool wants_host_path_;
  const InterruptCheck is_interrupted_;
  SlabInbox slab_inbox_;
  std::atomic<bool> device_opens_{false};  // some thread does; it alone writes the next one
  // While a GPU is opened: whom the engine may want to launch.
  Mutex opening_servant_mutex_;
  LaunchServant* opening_servant_ ABSL_GUARDED_BY(opening_servant_mutex_) = nullptr;
  std::atomic<bool> has_gpu_{false};
  std::shared_ptr<const CudaContext> gpu_;         // written before has_gpu_, as the next ones
  std::uint64_t slab_bytes_ = 0;                   // as asked for
  std::unique_ptr<LaunchServant> launch_servant_;  // null: the engine launches. Has the slab
  std::unique_ptr<DeviceMemory> device_memory_;
  std::unique_ptr<DeviceStaging> device_staging_;
  // The first of the two once both can be used: set once. Null where all go by the host path.
  std::atomic<DeviceMemory*> device_{nullptr};
  Mutex host_path_mutex_;
  std::unique_ptr<HostPath> host_path_ ABSL_GUARDED_BY(host_path_mutex_);  // once it is needed
  std::atomic<HostPath*> host_path_now_{nullptr};
  std::unique_ptr<DeviceSlab> heap_slab_ ABSL_GUARDED_BY(host_path_mutex_);
  std::unique_ptr<DeviceMemory> heap_ ABSL_GUARDED_BY(host_path_mutex_);  // in it
  std::atomic<bool> has_told_of_types_{false};
  // Since the last submission of a tensor on a GPU: see kFollowsStreamWait.
  std::atomic<bool> a_stream_waits_{false};
  LaunchPatience launch_patience_;  // AwaitLaunch's
  // What this rank, which could use NCCL, has agreed on with the other ranks: whether they go by
  // host; and what has been told of that.
  std::map<ringd_communicator, bool> agreed_ ABSL_GUARDED_BY(host_path_mutex_);
  std::set<std::string> told_ ABSL_GUARDED_BY(host_path_mutex_);
  Mutex timeline_pairs_mutex_;
  TimelinePairs timeline_pairs_ ABSL_GUARDED_BY(timeline_pairs_mutex_);
  Mutex unreleased_mutex_;
  std::vector<std::uint32_t> unreleased_pairs_ ABSL_GUARDED_BY(unreleased_mutex_);
  KeptWaitLists wait_lists_;
  ForkGuard fork_guard_;
  const std::unique_ptr<ControlChannel> control_;
  // Its thread uses what stands above, and stops first.
  Lifeline lifeline_;
  // In the job. It has ended as soon as nothing of this rank goes on.
  enum class Part : std::uint8_t { kTaken, kEnding, kEnded };
  Mutex part_mutex_;
  CondVar part_changed_;
  Part part_ ABSL_GUARDED_BY(part_mutex_) = Part::kTaken;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_CONTEXT_H_
