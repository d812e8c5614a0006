// The thread of one GPU in an engine: it makes every call of CUDA's and NCCL's for that GPU.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_THREAD_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_THREAD_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/cuda/cuda_context.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_event.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"

namespace ringd {

struct DeviceThreadOptions {
  std::string cuda_library;  // as for OpenCudaDriver and OpenNccl
  std::string nccl_library;
  std::string gpu;             // UUID
  std::string slab_setting;    // names what says how large slabs are, for messages
  std::string fusion_setting;  // the same of Connect's `fusion_bytes`
};

// What the thread is doing, for those who wonder why it does not answer.
struct DeviceThreadActivity {
  const char* call = "";  // such as "releasing waits"; "": it sleeps
  Clock::time_point since;
  // Opens the GPU, makes memory or communicators: that may take tens of seconds.
  bool sets_up = false;
};

// A driver may hang, a library wait for another rank. So the owner only hands work over and takes
// events: no method blocks, but Stop for as long as it says.
//
// A bucket's way, all on one stream of its communicator: wait for `ready`; pack, one launch, unless
// the tensors lie in one piece, unscaled; ncclAllReduce; unpack, one launch, where they were packed
// or the result is scaled; signal `done`. In the steady state nothing else is done on the GPU, and
// nothing is allocated or waited for. Buckets are launched in the order of Enqueue, whatever their
// communicator: several communicators on a GPU must be launched in one order on all ranks (NCCL
// User Guide, Using multiple NCCL communicators concurrently).
//
// A communicator fails as a whole: with a bucket's deadline, an asynchronous error, Abort. It is
// aborted then, its buckets end with the cause, their `ready` and `done` slots are released, so
// that no stream waits for what never comes.
//
// Thread safety: all methods on any thread.
// Ownership: slabs, communicators and buffers are the thread's. The destructor is Stop with
//   kStopPatience.
class DeviceThread {
 public:
  // Starts the thread, which opens libraries and GPU: DeviceOpened says how that went. `wake` is
  // called on it when there is an event after there was none; it must not block or call back.
  // event_fd() becomes readable, too.
  explicit DeviceThread(DeviceThreadOptions options, std::function<void()> wake = {});
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Readable while TakeEvents has something.
  int event_fd() const noexcept;
  // In the order in which it happened.
  std::vector<DeviceEvent> TakeEvents();

  // What follows is done in this order. After DeviceOpened with an error, and after DeviceLost, it
  // is answered with that error. An id that is not known is ignored, but in a bucket.

  // DeviceSlabCreated answers. `bytes` as for DeviceSlab::Create. Where there is no room, waits 5 s
  // for it: what an earlier incarnation of the job had may be about to be given back.
  void CreateSlab(DeviceSlabId slab, std::size_t bytes);
  // Releases these slots of its timeline, and gives the slab back when no bucket in flight uses it:
  // DeviceSlabReleased. Buckets that come later are refused.
  void ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots);

  // Ends all waits for these slots, now and later: of operations that were never enqueued and never
  // will be. No event answers.
  void ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots);

  // NcclIdCreated answers.
  void CreateId(std::uint64_t request);
  // Meets the other ranks: DeviceCommunicatorConnected answers. `fusion_bytes` of device memory are
  // taken for packing: as many bytes as the largest bucket of several tensors has.
  void Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank, int size,
               std::size_t fusion_bytes, Clock::time_point deadline);
  // Lets go in peace: its buckets are done, then NCCL finishes what other ranks still want of this
  // one, and the communicator is gone. No event answers. After `deadline`, or if it has not been
  // connected yet or fails, as Abort. An Abort of a communicator that other ranks are still busy
  // with breaks theirs, be all buckets done here: what is on its way to them may be lost.
  void Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline);
  // Takes effect before what was enqueued, also while the thread is in a call. Its buckets end
  // with kAborted, and the communicator is gone. One that has failed goes silently.
  void Abort(DeviceCommunicatorId communicator, absl::string_view reason);

  // DeviceBucketEnded answers.
  void Enqueue(DeviceBucket bucket);

  // Aborts everything, gives all back and ends the thread. False if that has not been done within
  // `patience`: the thread is left in its call. The process must end by _exit then, since the exit
  // handlers of the libraries may wait for the same thing. Later calls say the same at once.
  bool Stop(std::chrono::milliseconds patience = kStopPatience);

  DeviceThreadActivity activity() const;
  // Of communicators that are connected.
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const;

  static constexpr std::chrono::milliseconds kStopPatience{2000};

 private:
  class Worker;  // outlives this object while the thread is in a call
  std::shared_ptr<Worker> worker_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_THREAD_H_
