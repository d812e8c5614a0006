// Where the tensors of ordinary memory are while ringd works on them.
#ifndef RINGD_CLIENT_CORE_STAGING_H_
#define RINGD_CLIENT_CORE_STAGING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client/core/arena.h"
#include "client/core/operation_queue.h"
#include "client/core/registrations.h"
#include "client/core/staged_copies.h"
#include "proto/base/mutex.h"
#include "proto/shm/submission.h"

namespace ringd::client {

// Places each tensor in the arena: one that is there already stays, others get a staging block and are
// copied, unless their memory is used directly. A block goes back to its registration when the operation is
// consumed, so that in the steady state nothing is allocated and the pages stay warm.
//
// Thread safety: any thread may call anything.
// Ownership: borrows arena, registrations and copies.
class Staging {
 public:
  // `copies` may be null where nothing is copied in pieces.
  Staging(Arena& arena, Registrations& registrations, StagedCopies* copies);

  // Completes and checks the caller's pointers: a broadcast's root may leave its destination out.
  //   kInvalidArgument: a pointer is null, or source and destination overlap in part.
  static absl::Status CheckPointers(const Registration& registration, const void*& source,
                                    void*& destination);

  // Fills in `record`'s registration, offsets and count, and says in `end` what remains to be done;
  // copies the source if it lies outside the arena and is not to be read there, nor to be copied in pieces once it is
  // submitted.
  //   kInvalidArgument: a pointer is null, the range leaves the arena, source and destination overlap.
  //   kResourceExhausted: no room for a staging block. On failure nothing is held.
  absl::Status Place(Registration& registration, const void* source, void* destination,
                     Submission& record, OperationEnd& end, DirectUse direct);

  // Copies out what is not there yet of the result, if the operation has succeeded, and takes its staging block
  // back.
  void Finish(const OperationEnd& end, bool succeeded);

 private:
  absl::StatusOr<std::uint64_t> TakeBlock(Registration& registration);
  void GiveBack(Registration& registration, std::uint64_t offset);
  bool FreeIdleBlocks();

  Arena& arena_;
  Registrations& registrations_;
  StagedCopies* const copies_;
  Mutex mutex_;  // guards every Registration::idle_staging
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_STAGING_H_
