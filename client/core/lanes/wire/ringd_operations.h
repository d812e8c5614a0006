// Operations that ringd carries out: from the submission ring to the completion ring and to the
// waiter.
#ifndef RINGD_CLIENT_CORE_LANES_WIRE_RINGD_OPERATIONS_H_
#define RINGD_CLIENT_CORE_LANES_WIRE_RINGD_OPERATIONS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "client/core/attach/session_state.h"
#include "client/core/tensors/staged_copies.h"
#include "client/core/waiting/operation_queue.h"
#include "client/core/waiting/operation_table.h"
#include "client/core/waiting/spin_policy.h"
#include "client/core/waiting/trace_sink.h"
#include "proto/base/cache_line.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/session_segment.h"

namespace ringd::client {

// Completions are drained by whoever waits: there is no thread for it. A waiter spins briefly, then
// sleeps on the session's doorbell.
//
// Thread safety: any thread may call anything. Submitting and draining hold one lock for well under
//   a microsecond; nobody sleeps under it.
// Ownership: borrows segment, session state and copies, which must outlive it.
// Invariant: at most `submission_capacity` operations are in flight, so that neither ring can be
//   full: ringd always has room for a completion.
// Trust: a completion for an operation that isn't in flight ends the session. The library trusts
//   ringd with the content, not with its own memory.
class RingdOperations final : public OperationQueue {
 public:
  RingdOperations(const SessionSegmentView& segment, std::uint32_t submission_capacity,
                  std::uint32_t completion_capacity, UniqueFd engine_wakeup, SessionState& state,
                  StagedCopies& copies, std::chrono::nanoseconds spin_budget);

  // Notes waits that last. Before anything is submitted; null, as at first: notes none.
  void UseTrace(TraceSink* trace) noexcept { trace_ = trace; }

  // Wakes ringd if that sleeps. May allocate if more operations have not been taken out than ever
  // before.
  SubmitResult TrySubmit(Submission& record, const OperationEnd& end) override;
  // Of a submission whose source is to be copied in pieces: copies it. By the thread that has
  // submitted it, before anybody else hears of the operation.
  void CopySource(const OperationEnd& end);
  // One of a tensor in the arena whose source somebody else copies there in pieces, and whose
  // result that one takes in pieces.
  //   kUnavailable: there is no record for it now. kResourceExhausted: there is no room.
  absl::StatusOr<StagedCopies::InPieces> SubmitInPieces(Registration& tensor, std::uint64_t offset);
  // A piece of its source is there.
  void TellPiece(std::uint32_t progress, std::uint32_t piece);
  [[nodiscard]] bool WaitForRoom(const OperationEnd& end, Clock::time_point deadline) override;
  // Copies out what is final meanwhile of a result that comes in pieces.
  WaitResult Wait(std::uint64_t sequence, Clock::time_point deadline) override;
  WaitResult WaitUnnoted(std::uint64_t sequence, Clock::time_point deadline) override;
  WaitResult Test(std::uint64_t sequence) override;
  [[nodiscard]] bool Consume(std::uint64_t sequence, OperationOutcome& outcome,
                             OperationEnd& end) override;
  std::size_t ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                               std::vector<OperationEnd>& ends) override;
  const Registration* FindUsed(
      const std::unordered_set<const Registration*>& registrations) override;
  void WakeAll() noexcept override;

  // The timeline's pair of an operation in flight; kNoTimelinePair: it is of host memory, or is not
  // in flight.
  std::uint32_t TimelinePairOf(std::uint64_t sequence);
  // Where an operation that has not been consumed is staged in device memory; null: it is not.
  DeviceBlock* DeviceBlockOf(std::uint64_t sequence);
  // The pairs of all operations in flight, and of those that have ended badly: an engine that has
  // said so may have gone before it has released them.
  std::vector<std::uint32_t> TimelinePairsOfUnfulfilled();
  // Whether an operation with this pair has ended badly: ringd has released those who wait for it,
  // for good.
  bool IsReleased(std::uint32_t timeline_pair);

 private:
  struct alignas(kCacheLineBytes) Operation : OperationEntry {
    OperationEnd end;
    OperationOutcome outcome;
    bool fetching = false;  // a waiter copies pieces of the result; `end` is its, under mutex_
  };

  // From here to EndFetch(), which is told what was copied, the calling thread alone copies the
  // operation's result out, and nobody consumes it. Null: the result does not come in pieces, or
  // another thread copies.
  std::optional<OperationEnd> BeginFetch(std::uint64_t sequence);
  void EndFetch(std::uint64_t sequence, const OperationEnd& end);
  void RingEngine() noexcept;

  bool HasUndrained() const noexcept;
  void DrainIfAny();
  void Drain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Accept(const CompletionRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<const std::string> TextOf(const CompletionRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // kDone, kTimeout (still in flight) or kUnknown.
  WaitResult Look(std::uint64_t sequence);
  template <typename Condition>
  class Waiter;
  // `condition` says kTimeout for "not yet"; anything else ends the wait with that result. `trace`:
  // what is waited for is operation `sequence`.
  template <typename Condition>
  WaitResult WaitFor(SpinPolicy& spin, Condition condition, Clock::time_point deadline,
                     TraceSink* trace = nullptr, std::uint64_t sequence = 0);

  const SessionSegmentView segment_;
  const std::uint32_t capacity_;
  const UniqueFd engine_wakeup_;
  SessionState& state_;
  StagedCopies& copies_;
  SpinPolicy spin_;
  TraceSink* trace_ = nullptr;

  OperationPlaces<Operation> places_;
  Mutex mutex_;
  RingProducer<Submission> submissions_ ABSL_GUARDED_BY(mutex_);
  RingConsumer<CompletionRecord> completions_ ABSL_GUARDED_BY(mutex_);
  // The last failure's words: when a job fails, all its operations name the same slot.
  std::uint32_t cached_error_slot_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint32_t cached_error_version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const std::string> cached_error_ ABSL_GUARDED_BY(mutex_);
  // Pairs of the timeline whose operation has ended badly.
  std::unordered_set<std::uint32_t> released_pairs_ ABSL_GUARDED_BY(mutex_);
  OperationTable<Operation> table_ ABSL_GUARDED_BY(mutex_){places_};

  // An operation has been seen to end since the last submission: see kFollowsWait.
  std::atomic<bool> seen_end_{false};
  // How many operations in flight have a result that comes in pieces. Written under mutex_.
  std::atomic<std::uint32_t> in_pieces_{0};

  // Written under mutex_, read without: release and acquire, so that who sees a record counted here
  // also sees what became of its operation.
  std::atomic<std::uint64_t> next_sequence_{0};
  std::atomic<std::uint64_t> drained_{0};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_WIRE_RINGD_OPERATIONS_H_
