// Where the tensors of ordinary memory are while ringd works on them.
#ifndef RINGD_CLIENT_CORE_TENSORS_STAGING_H_
#define RINGD_CLIENT_CORE_TENSORS_STAGING_H_

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/core/tensors/arena.h"
#include "client/core/tensors/registrations.h"
#include "client/core/tensors/staged_copies.h"
#include "client/core/waiting/operation_queue.h"
#include "proto/base/mutex.h"
#include "proto/shm/submission.h"

namespace ringd::client {

// Places each tensor in the arena: one that is there already stays, others get a staging block and
// are copied, unless their memory is used directly. Blocks are kept when their operations have been
// consumed, so that in the steady state nothing is allocated and the pages stay warm; tensors of
// about the same size share them, and who needs one gets the one that was used last: operations
// that are waited for one by one find theirs in the caches.
//
// Thread safety: any thread may call anything.
// Ownership: borrows arena and copies.
class Staging {
 public:
  // `copies` may be null where nothing is copied in pieces.
  Staging(Arena& arena, StagedCopies* copies);

  // Completes and checks the caller's pointers: a broadcast's root may leave its destination out.
  //   kInvalidArgument: a pointer is null, or source and destination overlap in part.
  static absl::Status CheckPointers(const Registration& registration, const void*& source,
                                    void*& destination);

  // Fills in `record`'s registration, offsets and count, and says in `end` what remains to be done;
  // copies the source if it lies outside the arena and is not to be read there, nor to be copied in
  // pieces once it is submitted.
  //   kInvalidArgument: a pointer is null, the range leaves the arena, source and destination
  //     overlap.
  //   kResourceExhausted: no room for a staging block. On failure nothing is held.
  absl::Status Place(Registration& registration, const void* source, void* destination,
                     Submission& record, OperationEnd& end, DirectUse direct);

  // Copies the source of a tensor that was placed to be put off (`record` and `end` are of that),
  // into a block that was used lately, if there is one: its own is then kept for later.
  // `kept_chunks`: the DirectUse's.
  void CopyPutOff(std::uint32_t kept_chunks, Submission& record, OperationEnd& end);

  // Copies out what is not there yet of the result, if the operation has succeeded, and takes its
  // staging block back.
  void Finish(const OperationEnd& end, bool succeeded);

 private:
  // `warm`: the one that was used last, else the one that was not for longest.
  absl::StatusOr<std::uint64_t> TakeBlock(const Registration& registration, bool warm);
  std::uint64_t Exchange(const Registration& registration, std::uint64_t offset);
  void GiveBack(const Registration& registration, std::uint64_t offset);
  bool FreeIdleBlocks();

  Arena& arena_;
  StagedCopies* const copies_;
  Mutex mutex_;
  // Offsets of blocks that wait for the next submission, by their bytes; used last, last.
  std::unordered_map<std::uint64_t, std::deque<std::uint64_t>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_TENSORS_STAGING_H_
