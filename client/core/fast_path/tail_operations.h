// Submissions that are held back for the wait that follows, to be carried out by the ranks themselves.
#ifndef RINGD_CLIENT_CORE_FAST_PATH_TAIL_OPERATIONS_H_
#define RINGD_CLIENT_CORE_FAST_PATH_TAIL_OPERATIONS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/core/fast_path/fast_path_operations.h"
#include "client/core/fast_path/step_tail.h"
#include "client/core/waiting/operation_queue.h"
#include "client/ringd.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// A step ends when its last gradients are reduced, and those begin when all others are under way: there the way to
// ringd and back is time that nothing hides. So the last small tensors before a wait (StepTail) are not submitted when
// they come, but by the wait: together, as one operation on the fast path.
//
// An operation that is held has a *ticket* for its number. When it has been carried out, or submitted after all, the
// ticket leads to how it ended or to ringd's number.
//
// It is submitted after all, in the order of the submissions, when
//   - something else is submitted, looked at (ringd_test), or waited for before the tail is whole;
//   - the wait has a deadline that is too near for the fast path;
//   - the fast path gives it up;
//   - it has been held for a tenth of a second: ringd sees `held_since_ns` (FastPathMember) and says so
//     (NoticeKind::kReleaseHeld). So no other rank waits longer for a rank that computes on, or waits for something else.
//
// Then some ranks submit what others have to give up. Both count it as given up (SubmissionCount), and hold that tail again
// from the same step on (StepTail::kAgainAt): else they would miss each other, a tenth of a second each time.
//
// Thread safety: any thread may call anything.
// Ownership: borrows the fast path and the tensors' memory.
class TailOperations {
 public:
  // Submits to ringd. `counted`: the tensor's SubmissionCount knows of it already.
  using Submit =
      std::function<absl::Status(Registration& tensor, const void* source, void* destination,
                                 WhenFull when_full, bool counted, ringd_operation* operation)>;

  TailOperations(FastPathOperations& fast_path, Submit submit);
  TailOperations(const TailOperations&) = delete;
  TailOperations& operator=(const TailOperations&) = delete;

  // A submission whose pointers have been checked. True: it is held, and *operation its ticket. False: submit it; what was
  // held has been submitted. Blocks only as a submission does.
  [[nodiscard]] bool TryHold(Registration& tensor, const void* source, void* destination,
                             ringd_operation* operation);

  // At the beginning of a wait. Carries out what is held, or submits it. `may_carry`: nobody minds that this can take as long
  // as FastPathOperations::Carry. `meanwhile` (null: nothing): called once if something is carried, as by Carry.
  void BeginWait(bool may_carry, const std::function<void()>& meanwhile);
  // At a look at an operation.
  void BeginTest();
  // When ringd asks for what is held; on the lifeline's thread. Never blocks: what finds no room, or another thread in a
  // call, stays, and ringd asks again.
  void Release();

  static constexpr bool IsTicket(ringd_operation operation) noexcept {
    return operation != RINGD_DONE && (operation & kTicketBit) != 0;
  }
  // What the ticket stands for now: ringd's number, RINGD_DONE, or 0 if there is no such ticket (any more). An error:
  // ringd has refused it. Submits it if it is held; blocks as a submission does, and while another thread carries it out.
  absl::StatusOr<ringd_operation> Find(ringd_operation ticket);
  // Its end has been told to the caller: the ticket stands for nothing any more.
  void Forget(ringd_operation ticket);

 private:
  static constexpr ringd_operation kTicketBit = ringd_operation{1} << 62;
  // Tickets whose end nobody asks for: the oldest go.
  static constexpr std::size_t kMostTickets = 4096;

  struct Held {
    FastPathPart part;
    ringd_operation ticket = 0;
  };
  struct Ticket {
    ringd_operation ticket = 0;
    ringd_operation operation = 0;  // 0: held, or being carried out
    absl::Status status;
  };

  void SubmitHeld(WhenFull when_full) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: with kFail, there was no room.
  bool SubmitOne(const Held& held, WhenFull when_full, bool counted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ticket* FindTicket(ringd_operation ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FastPathOperations& fast_path_;
  const Submit submit_;

  Mutex mutex_;
  CondVar carried_;
  StepTail tail_ ABSL_GUARDED_BY(mutex_);
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);
  bool carrying_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Ticket> tickets_ ABSL_GUARDED_BY(mutex_);
  ringd_operation next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;

  // Of the one thread that carries.
  std::vector<Held> under_way_;
  std::vector<FastPathPart> parts_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_FAST_PATH_TAIL_OPERATIONS_H_
