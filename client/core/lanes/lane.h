// Which way the operations of a communicator go: chosen once, when a tensor is registered.
#ifndef RINGD_CLIENT_CORE_LANES_LANE_H_
#define RINGD_CLIENT_CORE_LANES_LANE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/core/attach/session_state.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staging.h"
#include "client/core/waiting/interrupt.h"
#include "client/core/waiting/operation_queue.h"
#include "proto/shm/submission.h"

namespace ringd::client {

// Thread safety: any thread may call anything.
// Ownership: borrows the queue, staging and state, which must outlive it.
class Lane {
 public:
  virtual ~Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Where its operations are waited for, by the numbers that Submit gives.
  OperationQueue& queue() const noexcept { return queue_; }

  // Of what Submit has said: there was no room for one more operation. There may be soon.
  static bool IsForRoom(const absl::Status& status) {
    return status.GetPayload(kForRoom).has_value();
  }

  // Submits a tensor in host memory; the operation's number in the queue. Blocks for a copy of the
  // source, and, if so told, until there is room or `is_interrupted` says so.
  //   kInvalidArgument: a pointer. kResourceExhausted: no room in the arena, or, if not told to
  //   wait, for one more operation. kCancelled: it was interrupted. Otherwise why the context has
  //   ended.
  absl::StatusOr<std::uint64_t> Submit(Registration& tensor, const void* source, void* destination,
                                       WhenFull when_full, const InterruptCheck& is_interrupted);

 protected:
  static constexpr char kForRoom[] = "ringd.no_room_for_an_operation";

  Lane(OperationQueue& queue, Staging& staging, const SessionState& state)
      : queue_(queue), staging_(staging), state_(state) {}

  Staging& staging() const noexcept { return staging_; }

  // Checks and completes the pointers, and fills in `record` and `end` as Staging::Place does,
  // where the tensor has to be in the arena.
  virtual absl::Status Place(Registration& tensor, const void*& source, void*& destination,
                             Submission& record, OperationEnd& end) = 0;
  // With what Place has left; fills in the record's sequence. Does not wait for room.
  virtual SubmitResult TrySubmit(Registration& tensor, const void* source, void* destination,
                                 Submission& record, const OperationEnd& end) = 0;

 private:
  OperationQueue& queue_;
  Staging& staging_;
  const SessionState& state_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_LANE_H_
