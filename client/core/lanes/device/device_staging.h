// Tensors in device memory that somebody else has allocated: their blocks in the slab, or in the
// host's memory, while ringd works on them.
#ifndef RINGD_CLIENT_CORE_LANES_DEVICE_DEVICE_STAGING_H_
#define RINGD_CLIENT_CORE_LANES_DEVICE_DEVICE_STAGING_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_stream.h"
#include "client/core/lanes/device/staging_memory.h"
#include "client/core/tensors/registrations.h"
#include "client/core/waiting/operation_queue.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd::client {

class DeviceStaging;

// Part of the memory, of one operation at a time, and kept for the next one of about its size when
// that has been consumed.
//
// Thread safety: offset, bytes and last_use belong to whoever has taken the block and not given it
//   to an operation; then to whoever has its lock.
// Ownership: of the event. Blocks live as long as their DeviceStaging, so that a thread which is
//   late finds another operation there, or none.
struct DeviceBlock {
  DeviceBlock(DeviceStaging& staging, CudaEvent event)
      : home(staging), last_use(std::move(event)) {}

  DeviceStaging& home;
  std::uint64_t offset = 0;  // in the memory
  std::uint64_t bytes = 0;
  // Behind all that streams of this process have to do with the block.
  CudaEvent last_use;
  Mutex mutex;
  // That has it now.
  std::optional<std::uint64_t> sequence ABSL_GUARDED_BY(mutex);
  DeviceAddress destination ABSL_GUARDED_BY(mutex) = 0;  // 0: the result is not copied out
  std::uint64_t result_bytes ABSL_GUARDED_BY(mutex) = 0;
  bool is_fetched ABSL_GUARDED_BY(mutex) = false;  // the copy to the destination is on a stream
};

// A source outside of the memory is copied into a block, on the stream on which it is ready; a
// result is copied to a destination outside of it, on the stream that waits for it or, when only
// the host waits, on one of ringd's. Nothing here waits for a stream of the caller's but Allocate
// and WaitUntilQuiet, until their deadlines.
//
// Thread safety: any thread may call anything. The driver, which may take its time, is called under
//   an operation's lock at most.
// Ownership: of blocks; borrows the memory, which must outlive what is on streams
//   (WaitUntilQuiet).
// Invariant: whatever a stream does with a block comes after all that streams have done with it
//   before. (The engine's work on it comes between the source's copy and the wait for the result.)
class DeviceStaging {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceStaging>> Create(StagingMemory& memory);

  struct Places {
    std::uint64_t source_offset = 0;
    std::uint64_t destination_offset = 0;
    DeviceBlock* block = nullptr;  // null: source and destination are there
  };
  // Where in the memory the result is worked out; puts the copy of a source that is elsewhere on
  // `stream`, and at the root of a broadcast the one to a destination that is not its source. A
  // block is the caller's until Begin or GiveBack.
  //   kInvalidArgument: a range is not in this GPU's memory, or leaves the slab; they overlap in
  //     part, or are not aligned to elements; the stream is none of this GPU.
  //   kResourceExhausted: the memory is full; the message says how full, and names the setting.
  //   Others as CudaStatus says.
  // `copy`: in place of StagingMemory's copy of the source, or of the result.
  using Copy = std::function<absl::Status(std::uint64_t offset, DeviceAddress tensor)>;
  absl::StatusOr<Places> Place(const Registration& registration, const void* source,
                               void* destination, void* stream, const Copy& copy = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The block is that operation's, which has been submitted.
  static void Begin(DeviceBlock& block, std::uint64_t sequence);

  // Puts on `stream`: wait for the result and copy it to its destination; if that is on another
  // stream already: wait for it. `pair`: the operation's in the timeline; nothing: it has ended.
  // `copy` waits for the result itself.
  //   kNotFound: the block is not that operation's any more: it has been consumed.
  //   kInvalidArgument: the stream is none of this GPU.  Others as CudaStatus says.
  absl::Status Fetch(DeviceBlock& block, std::uint64_t sequence, void* stream,
                     std::optional<std::uint32_t> pair, const Copy& copy = nullptr);

  // Of operations that have been consumed and have ended well, and whose blocks are of here: copies
  // the results that no stream has fetched, waits until they are in place, and takes the blocks
  // back.
  //   kDeadlineExceeded: the GPU has not copied in 30 s.  Others as CudaStatus says. The blocks
  //   then stay taken.
  absl::Status Finish(std::span<const OperationEnd> ends) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes a block back as it is.
  void GiveBack(DeviceBlock& block) ABSL_LOCKS_EXCLUDED(mutex_);

  // As StagingMemory::AllocateAt, and takes memory of idle blocks if there is no other, for which
  // streams may still have to be done with it until `deadline`.
  absl::StatusOr<std::uint64_t> Allocate(std::uint64_t bytes, Clock::time_point deadline)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether no stream of this process uses a block any more, or will have by the deadline.
  bool WaitUntilQuiet(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  DeviceStaging(StagingMemory& memory, CudaStream stream)
      : memory_(memory), stream_(std::move(stream)) {}
  // Its offset in the memory; nothing: it is elsewhere in this GPU's.
  absl::StatusOr<std::optional<std::uint64_t>> Locate(const Registration& registration,
                                                      const char* what, const void* address) const;
  static absl::Status CheckOverlap(const void* source, const void* destination,
                                   std::uint64_t bytes);
  // Of a rank that sends or receives, or both: where source and destination are the same, so are
  // the places.
  absl::StatusOr<Places> PlaceBoth(const Registration& registration, const void* source,
                                   void* destination, void* stream, const Copy& copy);
  absl::StatusOr<DeviceBlock*> Take(std::uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // One without memory.
  absl::StatusOr<DeviceBlock*> TakeSpare() ABSL_LOCKS_EXCLUDED(mutex_);
  DeviceBlock* TakeIdle(std::uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives idle blocks that no stream uses back to the memory. Whether there are others.
  bool FreeReached() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsHere(const OperationEnd& end) const noexcept {
    return end.device_block != nullptr && &end.device_block->home == this;
  }
  absl::Status CopyOut(DeviceBlock& block, void* stream, const Copy& copy = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(block.mutex);

  StagingMemory& memory_;
  const CudaStream stream_;
  Mutex mutex_;
  std::list<DeviceBlock> blocks_ ABSL_GUARDED_BY(mutex_);
  // By their bytes; used last, last.
  std::unordered_map<std::uint64_t, std::deque<DeviceBlock*>> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceBlock*> spare_ ABSL_GUARDED_BY(mutex_);  // without memory
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_DEVICE_DEVICE_STAGING_H_
