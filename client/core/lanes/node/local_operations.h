// Operations of a one-node job: the ranks combine their tensors themselves, in the memory they
// share.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_LOCAL_OPERATIONS_H_
#define RINGD_CLIENT_CORE_LANES_NODE_LOCAL_OPERATIONS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/core/attach/session_state.h"
#include "client/core/lanes/node/job_memory.h"
#include "client/core/tensors/direct_reads.h"
#include "client/core/tensors/local_chunks.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staging.h"
#include "client/core/waiting/operation_queue.h"
#include "client/core/waiting/operation_table.h"
#include "client/core/waiting/spin_policy.h"
#include "client/core/waiting/trace_sink.h"
#include "proto/base/cache_line.h"
#include "proto/base/doorbell.h"
#include "proto/base/mutex.h"
#include "proto/reduce/reduce.h"
#include "proto/reduce/tensor_scaling.h"
#include "proto/shm/chunk_claims.h"
#include "proto/shm/in_flight_index.h"
#include "proto/shm/job_segment.h"
#include "proto/trace/trace_clock.h"
#include "proto/trace/trace_event.h"

namespace ringd::client {

// One member's part in the protocol of proto/shm/job_segment.h. ringd is not woken: whoever waits
// does the work, its own operation first, then those submitted after it; where nobody waits, the
// thread of background_helper.h. A tensor of up to kAtOnceBytes is combined by the rank that comes
// last, when it submits.
//
// Thread safety: any thread may call anything. The lock is held for well under a microsecond;
//   nobody sleeps or combines more than kInlineBytes under it.
// Ownership: borrows the job's memory, the session's state, the staging and the registrations,
//   which must outlive it.
// Invariants: occurrences of one tensor end in order. Results have the same bits on all ranks: the
//   contributions are combined in the order of the local ranks, whoever does it.
// Failure: when the context has ended, waiters first see to it that no thread of this process
//   reduces any more, that what others still read of its ordinary memory comes to nothing, and that
//   no other rank writes into its arena tensor (for kQuietDeadline at most: one may have died amid
//   it). A source that can't be read ends its operation everywhere, after kCauseGrace.
class LocalOperations final : public OperationQueue {
 public:
  static constexpr std::uint64_t kAtOnceBytes = 1024;
  // Smaller ones wake nobody, and are combined in no time by who waits for them.
  static constexpr std::uint64_t kBackgroundFromBytes = 64 * 1024;
  // Smaller chunks are combined in no time, and not worth a trace event of their own.
  static constexpr std::uint64_t kChunkTracedFromBytes = std::uint64_t{32} << 10;
  static constexpr std::chrono::milliseconds kQuietDeadline{100};     // of an operation
  static constexpr std::chrono::milliseconds kAllQuietDeadline{300};  // of a failed context
  static constexpr std::chrono::seconds kCauseGrace{1};
  // Occurrences that are spoiled within so long of each other have one cause.
  static constexpr std::chrono::seconds kSameCause{5};
  // Smaller tensors of ordinary memory are copied: they stay in the caches, where copies cost less
  // than asking the kernel. Two ranks, all copied against this, in µs: 64 KiB 5.4 and 6.5, 128 KiB
  // 8.9 and 9.6, 256 KiB 9.8 and 9.2, 384 KiB 14.3 and 12.5, 1 MiB 41 and 31 (medians in turns, AMD
  // EPYC, 2026-11-23).
  static constexpr std::uint64_t kDirectFromBytes = 256 * 1024;
  // Beyond so many bytes in staging blocks, of operations that have not ended, submissions are put
  // off: they are copied and shown to the others later, in their order, by who waits and has
  // nothing else to do, or by the background helper. So a burst of submissions goes through a few
  // blocks that stay in the caches.
  static constexpr std::uint64_t kStagedWindowBytes = std::uint64_t{1} << 20;
  // Larger ones are copied at once, so that nobody who looks in between is kept for long.
  static constexpr std::uint64_t kPutOffMostBytes = std::uint64_t{16} << 20;

  // At most `capacity` (a power of two) operations are in flight. `staging` copies what is put off;
  // null: nothing is, as where no background helper would make up for it. `trace`: where
  // this rank's events go.
  LocalOperations(const JobMemory& memory, std::uint32_t capacity, SessionState& state,
                  std::chrono::nanoseconds spin_budget, DirectReading reading, Staging* staging,
                  const TracePlace& trace = {});
  ~LocalOperations() override;

  // True if the tensor travels in its slot, from and to memory of any kind: then SubmitInline.
  static bool IsInline(const Registration& registration) noexcept {
    return registration.bytes <= (registration.is_scaled ? kScaledInlineBytes : kInlineBytes);
  }
  // Reading the clock twice would make one in its slot, of some 300 ns, take a sixth longer.
  static bool IsTraced(const Registration& registration) noexcept {
    return !IsInline(registration);
  }
  // How the tensor may be used if it lies in ordinary memory.
  DirectUse DirectUseOf(const Registration& registration) noexcept {
    DirectUse use{.put_off = PutsOff(registration)};
    if (registration.bytes < kDirectFromBytes) return use;
    use.by_itself = true;
    if (direct_reads_.Allowed()) use.kept_chunks = KeptChunks(registration);
    return use;
  }

  // As TrySubmit, without staging. `sequence` is the operation's number.
  SubmitResult SubmitInline(Registration& registration, const void* source, void* destination,
                            std::uint64_t& sequence);

  // Whether submissions are put off, as at first. Any thread.
  void SetPutsOff(bool puts_off) noexcept { puts_off_.store(puts_off, std::memory_order_relaxed); }
  bool AnyPutOff() const noexcept { return put_off_count_.load(std::memory_order_relaxed) != 0; }
  // Lets more of what was put off through, until all has been: another rank may be waiting for it.
  void WidenStagedWindow();

  SubmitResult TrySubmit(Submission& record, const OperationEnd& end) override;
  [[nodiscard]] bool WaitForRoom(const OperationEnd& end, Clock::time_point deadline) override;
  WaitResult Wait(std::uint64_t sequence, Clock::time_point deadline) override {
    return WaitWith(spin_, true, sequence, deadline);
  }
  WaitResult WaitAndTake(std::uint64_t sequence, Clock::time_point deadline) override {
    bool taken = false;
    return WaitWith(spin_, true, sequence, deadline, &taken);
  }
  WaitResult WaitUnnoted(std::uint64_t sequence, Clock::time_point deadline) override {
    SpinPolicy none;
    return WaitWith(none, false, sequence, deadline);
  }
  // May combine one chunk of what all ranks have submitted, or copy a tensor of kPutOffMostBytes at
  // most.
  WaitResult Test(std::uint64_t sequence) override;
  [[nodiscard]] bool Consume(std::uint64_t sequence, OperationOutcome& outcome,
                             OperationEnd& end) override;
  std::size_t ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                               std::vector<OperationEnd>& ends) override;
  const Registration* FindUsed(
      const std::unordered_set<const Registration*>& registrations) override;
  void WakeAll() noexcept override;

  // For a context that has ended: when it returns, no thread of this process writes for an
  // operation any more, and what others read of its ordinary memory comes to nothing. Blocks for
  // one chunk of a tensor at most, or for the copy of one that was put off.
  void GiveUp() noexcept;

  // Ends an operation or reduces one chunk, the oldest operation's first, or places what was put
  // off. False if there is nothing to do, or if a thread of this process waits, which will do it.
  // `oldest`: 0 at first, then what the call before left there.
  bool WorkInBackground(std::uint64_t& oldest);
  // Grows as operations are taken out, that is, while a thread of this process waits for one after
  // the other.
  std::uint64_t consumed() const noexcept { return consumed_.load(std::memory_order_relaxed); }
  // Blocks until an operation of kBackgroundFromBytes or more has been submitted, or one put off,
  // and something is in flight, or until `ended()`, which WakeBackground lets it look at; a second
  // at most.
  template <typename Ended>
  void AwaitBackgroundWork(Ended ended) {
    submitted_.Wait(std::chrono::seconds(1), [&] { return ended() || in_flight() > 0; });
  }
  // Blocks until one of kBackgroundFromBytes or more is submitted, or one put off, or until
  // `ended()`; `most` at most. True: it was.
  template <typename Ended>
  bool AwaitLargeSubmission(std::chrono::nanoseconds most, Ended ended) {
    const std::uint32_t seen = submitted_.rings.load(std::memory_order_relaxed);
    submitted_.Wait(most, ended);
    return submitted_.rings.load(std::memory_order_relaxed) != seen;
  }
  void WakeBackground() noexcept { submitted_.Ring(); }

 private:
  bool PutsOff(const Registration& registration) const noexcept {
    if (staging_ == nullptr || registration.bytes > kPutOffMostBytes) return false;
    if (AnyPutOff()) return true;
    if (!puts_off_.load(std::memory_order_relaxed)) return false;
    const std::uint64_t before = staged_bytes_.load(std::memory_order_relaxed);
    return before != 0 && before + registration.bytes > kStagedWindowBytes;
  }
  std::uint32_t KeptChunks(const Registration& registration) const noexcept {
    return HomeChunks(self_, member_count_, ChunkCount(registration.bytes));
  }

  struct Tensor;
  // One operation.
  struct alignas(kCacheLineBytes) Operation : OperationEntry {
    // What is looked at without the lock; for an operation that is in flight they stand.
    std::atomic<Tensor*> tensor{nullptr};
    std::atomic<std::uint64_t> occurrence{0};
    std::atomic<std::uint32_t> chunk_count{0};  // 0: inline
    std::atomic<bool> put_off{false};           // the others do not know of it yet
    // Bits of chunks whose result this process wrote into the direct destination.
    std::atomic<std::uint32_t> written_chunks{0};
    // The rest is guarded by mutex_.
    // Chunks that threads of this process are at, whatever the shared words say.
    std::uint32_t own_chunks = 0;
    Registration* registration = nullptr;
    void* inline_destination = nullptr;
    // Of one that was put off.
    const void* inline_source = nullptr;
    Submission record;
    OperationEnd end;
    OperationOutcome outcome;
    Clock::time_point spoiled_since{};  // seen
  };
  // All that this member knows of one name.
  struct Tensor {
    explicit Tensor(std::uint32_t tensor_number) : number(tensor_number) {}
    const std::uint32_t number;
    std::atomic<std::uint64_t> ended{0};  // written under mutex_
    // The rest is guarded by mutex_.
    std::uint64_t posted = 0;     // what was put off counts, too
    std::uint64_t published = 0;  // of these, what the others can see
    std::uint32_t in_flight_place = InFlightIndex::kNoPlace;
    std::uint32_t put_off = 0;
    std::uint64_t room_until = 0;  // occurrences below this may be posted
    std::array<Operation*, kOccurrencesInFlight> pending{};
  };
  // A claimed chunk, with all that is needed to reduce it.
  struct Chunk {
    Registration* registration = nullptr;
    std::uint32_t tensor = 0;
    std::uint64_t occurrence = 0;
    std::uint32_t chunk_count = 0;
    int chunk = kNoChunk;
    Operation* operation = nullptr;
  };
  struct ChunkMemory;
  // What a trace event is about.
  struct Traced {
    std::uint32_t tensor = 0;
    std::uint64_t occurrence = 0;
  };
  class NotedWait;

  SubmitResult Post(Registration& registration, const OperationEnd& end, const void* inline_source,
                    void* inline_destination, const Submission& record, std::uint64_t& sequence);
  // Makes it an operation, of which the others know nothing yet; null: there is no room.
  Operation* Enlist(Registration& registration, const OperationEnd& end, std::uint64_t& sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Shows it to the others: what has been enlisted last of its tensor, or put off first. Its
  // occurrence.
  std::uint64_t Publish(Operation& operation, const Submission& record, const void* inline_source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To be called next, without the lock. By now the operation may have ended, and its place be
  // another's.
  void Announce(Operation& operation, std::uint64_t sequence, const Registration& registration,
                std::uint64_t occurrence);
  void AddStagedBytes(std::uint64_t bytes) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutOff(Operation& operation, const Submission& record, const void* inline_source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Copies and publishes what was put off first, if it may: up to operation `wanted` in any case,
  // beyond it as far as the window allows. False if it did nothing. Blocks for the copy of a tensor
  // of kPutOffMostBytes at most.
  bool PublishNext(std::uint64_t wanted);
  Tensor& TensorOf(std::uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Operation* Find(std::uint64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);
  void CountConsumed(std::uint64_t count) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static OperationEnd EndOf(const Operation& operation) noexcept;

  bool HasArrived(std::uint32_t tensor, std::uint64_t occurrence) const noexcept {
    const TensorView view = segment_.Of(tensor);
    for (std::uint32_t m = 0; m < member_count_; ++m) {
      const SubmissionSlot& slot = view.Slot(m, occurrence);
      if (slot.occurrence.load(std::memory_order_acquire) != occurrence + 1) return false;
    }
    return true;
  }
  // A look without the lock. False: Advance would find nothing to do, since some member has not
  // submitted.
  bool MayAdvance(const Operation& operation) const noexcept;
  // Chunks whose sources others keep in their ordinary memory: reading them there costs more than
  // they do, so who waits leaves them for a while.
  enum class Foreign : bool { kLeave, kTake };
  // Ends what can be ended, or reduces one chunk, of this operation's tensor or of later
  // operations. False if there was nothing to do. `taken` not null: the operation is consumed as
  // soon as it ends, if all that there is to know stands in its word, and this is told there.
  bool Advance(Operation& operation, std::uint64_t sequence, Foreign foreign,
               bool* taken = nullptr);
  // What a look of who is interested in the operation does: Advance, else PublishNext, up to it if
  // it is put off. False if there was nothing to do.
  bool WorkFor(Operation& operation, std::uint64_t sequence, Foreign foreign,
               bool* taken = nullptr);
  // Advance's `taken`, once an operation has ended.
  void TakeIfPlain(std::uint64_t sequence, bool* taken) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One piece of work for the operation's tensor, or a chunk of a later one: true if any operation
  // has ended, else what is to be reduced.
  std::pair<bool, std::optional<Chunk>> EndOrClaim(const Operation& operation,
                                                   std::uint64_t sequence, Foreign foreign)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if any operation has ended.
  bool EndInOrder(Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryEnd(Tensor& tensor, Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Conflicts(const Tensor& tensor, std::uint64_t occurrence,
                 std::vector<std::uint32_t>* metas) const;
  std::optional<Spoiled> SpoiledOf(std::uint32_t tensor, std::uint64_t occurrence) const noexcept;
  // Whether ringd has had its time to say what is behind its spoiled occurrence.
  bool CauseGraceIsOver(Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Describe(const Registration& registration, const Spoiled& spoiled) const;
  std::uint32_t MemberOf(std::int32_t rank) const noexcept;
  void CountEnd(Tensor& tensor, const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Matching by order: how the members' operations differ.
  std::string DescribeConflict(const Tensor& tensor, const Operation& operation) const;
  TensorScaling ScalingOf(const TensorDescription& tensor) const noexcept;
  void CombineInline(const Tensor& tensor, const Operation& operation) const;
  std::optional<Chunk> Claim(Tensor& tensor, Foreign foreign) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Chunk> ClaimLater(std::uint64_t sequence, Foreign foreign)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reduces it, and ends what can be ended then: true if any operation has. `sequence`, `taken`: as
  // Advance's.
  bool Reduce(const Chunk& chunk, std::uint64_t sequence, bool* taken);
  // This thread uses its memory no more.
  void LeaveChunk(const Chunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False if another member broke the protocol: the context has ended.
  [[nodiscard]] bool Locate(const Chunk& chunk, ChunkMemory& memory);
  void Combine(const TensorDescription& tensor, ChunkMemory& memory) const;
  // The member that could not be read, and why; nothing if all is well.
  std::optional<Spoiled> CombineByPieces(const Chunk& chunk, const ChunkMemory& memory);
  void Spoil(std::uint32_t tensor, const Spoiled& spoiled) noexcept;
  std::unique_ptr<std::byte[]> TakeScratch();
  // No thread of this process begins another chunk; true if none is at one. The context has ended.
  bool StopReducing() noexcept;
  // Nobody writes into the caller's memory for this operation any more when it returns.
  void Quieten(Operation& operation);
  void RingSleepers() noexcept;

  WaitResult Look(const Operation& operation, std::uint64_t sequence) const noexcept;
  // Of those at their places.
  Operation* OldestInFlight(std::uint64_t from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Operation* OldestThatMayAdvance(std::uint64_t from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends what is done of other operations than the one that is waited for: a rank that waits for
  // room in their tensors may be the one that this wait is for.
  void EndOthers();
  template <typename Done, typename Work>
  class Waiter;
  // Until done(), the end of the context or `deadline`: false. `traced`: what is waited for, to be
  // noted if it lasts; null: nothing.
  template <typename Done, typename Work>
  bool WaitUntil(SpinPolicy& spin, Done& done, Work& work, std::chrono::nanoseconds first_sleep,
                 std::chrono::nanoseconds longest_sleep, Clock::time_point deadline,
                 const Traced* traced);
  // `noted`: in the trace. `taken`: as Advance's.
  WaitResult WaitWith(SpinPolicy& spin, bool noted, std::uint64_t sequence,
                      Clock::time_point deadline, bool* taken = nullptr);

  void AddReducers(std::int32_t count) noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::uint32_t reducers =
        reducers_.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(count);
    // Threads of this process may be amid other chunks: who is last says that none is.
    if (reducers == 0) own_state_.reducing.store(0, std::memory_order_relaxed);
    reducers_.store(reducers, std::memory_order_release);
  }

  // When the tensor's operation begins or ends.
  std::uint64_t TraceTime(const Registration& registration) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Trace(TraceStage stage, const Traced& traced, std::uint64_t at_ns, std::uint64_t value,
             std::int32_t status = 0) noexcept;
  // What began then and has ended now.
  void TraceSince(TraceStage stage, const Traced& traced, std::uint64_t begin_ns) noexcept;

  const JobMemory& memory_;
  const JobSegmentView segment_;
  const std::uint32_t self_;
  const std::uint32_t member_count_;
  const std::uint32_t capacity_;
  SessionState& state_;
  SpinPolicy spin_;
  // By member; copied, since other members can write into the segment.
  const std::vector<std::int32_t> ranks_;
  SharedMember& own_state_;
  DirectReads direct_reads_;
  // Threads of this process that are in Reduce, or copy in PublishNext. Written under mutex_; does
  // not grow once the context has ended.
  std::atomic<std::uint32_t> reducers_{0};
  Doorbell submitted_{};  // where the background thread sleeps
  const TracePlace trace_;
  TraceClock trace_clock_;  // read under mutex_, but for `last`

  OperationPlaces<Operation> places_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Tensor>> tensors_ ABSL_GUARDED_BY(mutex_);  // by number
  InFlightIndex in_flight_index_ ABSL_GUARDED_BY(mutex_);
  OperationTable<Operation> table_ ABSL_GUARDED_BY(mutex_){places_};
  std::uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ordered_ ABSL_GUARDED_BY(mutex_) = 0;  // matching by order: the next number
  std::atomic<std::uint64_t> consumed_{0};                  // written under mutex_
  // What was put off, in order. Looked at without the lock for its number, and for the bytes of
  // staging blocks in operations that have not ended; both written under it.
  Staging* const staging_;
  std::deque<Operation*> put_off_ ABSL_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> put_off_count_{0};
  std::atomic<bool> puts_off_{true};
  std::atomic<std::uint64_t> staged_bytes_{0};
  std::uint64_t staged_window_ ABSL_GUARDED_BY(mutex_) = kStagedWindowBytes;
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is in PublishNext, without the lock
  // For what is read from other processes; one per thread that reduces at the same time.
  const std::size_t scratch_bytes_;
  std::vector<std::unique_ptr<std::byte[]>> idle_scratch_ ABSL_GUARDED_BY(mutex_);
  std::atomic<Clock::time_point> quiet_until_{};  // kAllQuietDeadline, once it runs
  // Of the last spoiled occurrences that came soon after each other: the first, and the last.
  Clock::time_point first_spoiled_ ABSL_GUARDED_BY(mutex_){};
  Clock::time_point last_spoiled_ ABSL_GUARDED_BY(mutex_){};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_LOCAL_OPERATIONS_H_
