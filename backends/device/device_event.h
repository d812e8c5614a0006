// What a GPU's thread tells its owner.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_EVENT_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "backends/cuda/cuda_context.h"
#include "backends/device/device_bucket.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// The GPU can be used; or not, and then nothing else of it can.
struct DeviceOpened {
  absl::Status status;               // as CudaContext::OpenByUuid, and the kernels' loading
  std::optional<bool> is_under_mps;  // as CudaContext has it
  std::string nccl_version;          // such as "2.29.7"
  // Connect may be given a slab to register; a trainer's library from before that can't do it.
  bool registers = false;
};

// Answers CreateSlab.
struct DeviceSlabCreated {
  DeviceSlabId slab;
  absl::Status status;    // as DeviceSlab::Create
  UniqueFd descriptor;    // for ImportedSlab; none if slabs are not exported
  std::size_t bytes = 0;  // of the slab
  std::string gpu;        // its UUID
  // Where it lies in the process that has made it.
  DeviceAddress address = 0;
};

// Answers ReleaseSlab: the memory is the trainer's alone, or free.
struct DeviceSlabReleased {
  DeviceSlabId slab;
};

// Answers CreateId.
struct NcclIdCreated {
  std::uint64_t request = 0;
  absl::Status status;
  NcclIdBytes id{};
};

// Answers Connect: all ranks have met, or why not.
//   kDeadlineExceeded: some never came.  kAborted: Abort.  Others as NcclStatus says.
struct DeviceCommunicatorConnected {
  DeviceCommunicatorId communicator;
  absl::Status status;
  bool is_lost_gpu = false;  // DeviceLost is why: nobody else knows better
};

// Of a communicator for which Connect was given a slab to register, once its ranks have agreed:
// before the end of its first bucket.
struct DeviceMemoryRegistered {
  DeviceCommunicatorId communicator;
  std::uint64_t bytes = 0;  // of this rank; 0: of no rank
  std::string why_not;      // of 0
};

// A communicator that was connected has failed: once, at once. The ends of its buckets follow when
// nothing touches their memory any more, which takes milliseconds; after a second, whatever the GPU
// does.
//   kDeadlineExceeded: a bucket's deadline, with what it waited for.  kAborted: Abort.
//   Others as NcclStatus says.
struct DeviceCommunicatorFailed {
  DeviceCommunicatorId communicator;
  absl::Status status;
  bool is_lost_gpu = false;  // likewise
};

// The bucket whose turn it is waits for tensors of this rank, for kLongAwaited by now: the stream
// that makes them has not come so far. Or it does not any more. Nothing of one that takes less; one
// that fails or is done while it waits has its end alone.
struct DeviceBucketAwaits {
  std::uint64_t bucket = 0;
  DeviceCommunicatorId communicator;
  bool awaits = false;
};

// The end of a bucket; each that was enqueued has exactly one.
//   Ok: the results are in place, and have been signalled.
//   kInvalidArgument: it is not what DeviceBucket says, or its communicator or a slab is not there.
//     Nothing was launched, and the communicator is as it was; but other ranks may have launched
//     theirs. `done` is signalled all the same, so that no stream waits for ever.
//   kUnimplemented: NCCL can't reduce it so. The same.
//   kResourceExhausted: larger than Connect's `fusion_bytes`, and not in one piece. The same.
//   Others: as the communicator's failure. The content of the destinations is undefined. Its slots
//     have been released: whoever waits for them, this bucket's ranks or others, goes on.
struct DeviceBucketEnded {
  std::uint64_t bucket = 0;
  DeviceCommunicatorId communicator;
  absl::Status status;
  DeviceBucketTimes times;
};

// The GPU can't be used by this process any more; all communicators have failed. Once.
//   kAborted: a fatal error of CUDA's. Only a new process can use the GPU.
struct DeviceLost {
  absl::Status status;
};

using DeviceEvent =
    std::variant<DeviceOpened, DeviceSlabCreated, DeviceSlabReleased, NcclIdCreated,
                 DeviceCommunicatorConnected, DeviceMemoryRegistered, DeviceCommunicatorFailed,
                 DeviceBucketAwaits, DeviceBucketEnded, DeviceLost>;

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_EVENT_H_
