// The operations of one context, from submission to the waiter: what all ways of carrying them out
// share.
#ifndef RINGD_CLIENT_CORE_WAITING_OPERATION_QUEUE_H_
#define RINGD_CLIENT_CORE_WAITING_OPERATION_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "proto/base/clock.h"
#include "proto/shm/submission.h"

namespace ringd::client {

struct DeviceBlock;
struct Registration;

inline constexpr std::uint64_t kNoStaging = ~std::uint64_t{0};
inline constexpr std::uint32_t kNoProgress = ~std::uint32_t{0};
inline constexpr std::uint32_t kNoTimelinePair = ~std::uint32_t{0};

// What may be done with a tensor of ordinary memory besides copying all of it.
struct DirectUse {
  bool by_itself = false;  // this process can read the source and write the result where they are
  // Bits of chunks (local_chunks.h) that other ranks can read where they are, and are not likely
  // to.
  std::uint32_t kept_chunks = 0;
  // ringd works on it while it is copied (StagedCopies).
  bool in_pieces = false;
  // The source is copied when the submission's turn comes (LocalOperations).
  bool put_off = false;
};

// What is left to do when an operation has ended well, and to give back in any case.
struct OperationEnd {
  Registration* registration = nullptr;
  const void* copy_from = nullptr;  // null: nothing to copy
  void* copy_to = nullptr;
  std::uint64_t staging_offset = kNoStaging;  // of the arena; to be given back
  // In ordinary memory, for chunks that this process reduces; null: not used where it is.
  const void* direct_source = nullptr;
  void* direct_destination = nullptr;
  bool split_source = false;         // some chunks of the source are only there
  bool by_order = false;             // the registration is to be given back (OrderedDescriptions)
  std::uint32_t written_chunks = 0;  // bits of those whose result is there: they need no copying
  // Of a tensor that is staged in pieces: the session's record of it (StagedCopies), to be given
  // back.
  std::uint32_t progress = kNoProgress;
  // Of a tensor in device memory (DeviceMemory): its pair of the timeline.
  std::uint32_t timeline_pair = kNoTimelinePair;
  // Of one that is staged there (DeviceStaging); null: it is not.
  DeviceBlock* device_block = nullptr;
  // Of that, or of one whose copy is put off: to be copied once it is submitted; null: nothing.
  const void* staged_from = nullptr;
  void* staged_to = nullptr;
  std::uint64_t fetched_pieces = 0;  // bits of those that need no copying out any more

  bool IsNothing() const noexcept {
    return copy_from == nullptr && staging_offset == kNoStaging && progress == kNoProgress &&
           device_block == nullptr && !by_order;
  }
};

// How an operation ended.
struct OperationOutcome {
  bool completed = false;                   // false: nobody has said, and nobody will
  std::int32_t status = 0;                  // an absl::StatusCode
  std::shared_ptr<const std::string> text;  // null if status is 0, or if the words were lost
  // Not empty: the local ranks' descriptions differ; these are their numbers, by local rank.
  std::vector<std::uint32_t> conflicting_metas;
};

enum class SubmitResult : std::uint8_t {
  kOk = 0,
  kFull,   // as many operations are in flight as there is room for
  kEnded,  // the context can't be used any more: SessionState says why
};

// What a submission does about kFull.
enum class WhenFull : bool { kWait, kFail };

enum class WaitResult : std::uint8_t {
  kDone = 0,
  kTimeout,
  kEnded,    // the context came to its end and this operation will not complete
  kUnknown,  // no such operation, or it has been consumed
  kTaken,    // it has ended well, left nothing to be done, and has been consumed: WaitAndTake
};

// An operation's number and state in one word, so that a waiter sees both with one load.
struct OperationWords {
  enum State : std::uint64_t { kFree = 0, kInFlight = 1, kDone = 2 };
  // Its OperationEnd is nothing, and if it is done it has ended well: all that there is to know
  // stands in the word.
  static constexpr std::uint64_t kPlain = 4;
  static constexpr std::uint64_t Word(std::uint64_t sequence, State state,
                                      bool plain = false) noexcept {
    return sequence << 3 | (plain ? kPlain : 0) | state;
  }
  static constexpr std::uint64_t SequenceOf(std::uint64_t word) noexcept { return word >> 3; }
  static constexpr State StateOf(std::uint64_t word) noexcept {
    return static_cast<State>(word & 3);
  }
  static constexpr bool IsPlain(std::uint64_t word) noexcept { return (word & kPlain) != 0; }
  static constexpr bool IsInFlight(std::uint64_t word, std::uint64_t sequence) noexcept {
    return SequenceOf(word) == sequence && StateOf(word) == kInFlight;
  }
  // What the word says of an operation: kDone, kTimeout (in flight), or kUnknown, if it is not that
  // one's.
  static constexpr WaitResult ResultOf(std::uint64_t word, std::uint64_t sequence) noexcept {
    if (SequenceOf(word) != sequence || StateOf(word) == kFree) return WaitResult::kUnknown;
    return StateOf(word) == kInFlight ? WaitResult::kTimeout : WaitResult::kDone;
  }
};

// Operations are numbered 0, 1, 2, ... as they are submitted.
//
// Thread safety: any thread may call anything.
class OperationQueue : protected OperationWords {
 public:
  virtual ~OperationQueue() = default;

  // Submits `record`, whose sequence, time and flags it fills in. Does not block.
  virtual SubmitResult TrySubmit(Submission& record, const OperationEnd& end) = 0;

  // Blocks until there may be room for what TrySubmit refused with `end`, at most until `deadline`.
  // False when the context has ended instead.
  [[nodiscard]] virtual bool WaitForRoom(const OperationEnd& end, Clock::time_point deadline) = 0;

  // Blocks until the operation has ended, at most until `deadline`. Does not consume it.
  virtual WaitResult Wait(std::uint64_t sequence, Clock::time_point deadline) = 0;
  // The same, but it may consume an operation at once that has ended well and leaves nothing to be
  // done: kTaken.
  virtual WaitResult WaitAndTake(std::uint64_t sequence, Clock::time_point deadline) {
    return Wait(sequence, deadline);
  }
  // As Wait, for a thread of the library's own, which comes again and again: it does not spin, and
  // no trace tells of it.
  virtual WaitResult WaitUnnoted(std::uint64_t sequence, Clock::time_point deadline) {
    return Wait(sequence, deadline);
  }

  // As Wait, without blocking: kTimeout means that it is still in flight.
  virtual WaitResult Test(std::uint64_t sequence) = 0;

  // Takes the operation out. False if somebody else has. Call after Wait gave kDone or kEnded, with
  // a new `outcome` and `end`; if the outcome is not `completed`, SessionState has the reason.
  [[nodiscard]] virtual bool Consume(std::uint64_t sequence, OperationOutcome& outcome,
                                     OperationEnd& end) = 0;

  // Takes out the first so many of `sequences` that have ended well, in one go; says how many. What
  // remains to be done for them is added to `ends`, nothing for those that need nothing. Does not
  // block.
  virtual std::size_t ConsumeSucceeded(std::span<const std::uint64_t> sequences,
                                       std::vector<OperationEnd>& ends) = 0;

  // One of these of which an operation has not been consumed; null: there is none. Takes as long as
  // the queue is.
  virtual const Registration* FindUsed(
      const std::unordered_set<const Registration*>& registrations) = 0;

  // Wakes every waiter so that it looks at SessionState again.
  virtual void WakeAll() noexcept = 0;

  // How many threads are in WaitForRoom or Wait right now.
  std::uint32_t waiters() const noexcept { return waiters_.load(std::memory_order_acquire); }
  std::uint32_t in_flight() const noexcept { return in_flight_.load(std::memory_order_acquire); }

 protected:
  // Written under the lock of the queue at hand.
  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<std::uint32_t> waiters_{0};
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_OPERATION_QUEUE_H_
