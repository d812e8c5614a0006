// What the owner of communicators on a GPU asks of whoever launches there.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_LAUNCHER_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_LAUNCHER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_event.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"

namespace ringd {

// What the launching thread is doing, for those who wonder why it does not answer.
struct DeviceThreadActivity {
  std::string call;  // such as "releasing waits"; empty: it sleeps
  Clock::time_point since;
  // Opens the GPU, makes memory or communicators: that may take tens of seconds.
  bool sets_up = false;
};

// One GPU, in which buckets of tensors are reduced. In this process that is a DeviceThread; an
// engine may also have a trainer's process do it (daemon/lanes/device/trainer_launcher.h).
//
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
// Ownership: slabs, communicators and buffers are the launcher's. The destructor is Stop with
//   kStopPatience.
class DeviceLauncher {
 public:
  virtual ~DeviceLauncher() = default;

  // In the order in which it happened.
  virtual std::vector<DeviceEvent> TakeEvents() = 0;

  // What follows is done in this order. After DeviceOpened with an error, and after DeviceLost, it
  // is answered with that error. An id that is not known is ignored, but in a bucket.

  // DeviceSlabCreated answers. `bytes` as for DeviceSlab::Create. Where there is no room, waits 5 s
  // for it: what an earlier incarnation of the job had may be about to be given back.
  virtual void CreateSlab(DeviceSlabId slab, std::size_t bytes) = 0;
  // Releases these slots of its timeline, and gives the slab back when no bucket in flight uses it:
  // DeviceSlabReleased. Buckets that come later are refused.
  virtual void ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots) = 0;

  // Ends all waits for these slots, now and later: of operations that were never enqueued and never
  // will be. No event answers.
  virtual void ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots) = 0;

  // NcclIdCreated answers.
  virtual void CreateId(std::uint64_t request) = 0;
  // Meets the other ranks: DeviceCommunicatorConnected answers. `fusion_bytes` of device memory are
  // taken for packing: as many bytes as the largest bucket of several tensors has.
  // `registered_slab`: where this rank's tensors lie. Slab and fusion buffer are registered with
  // NCCL before the first bucket, if all ranks can: DeviceMemoryRegistered tells. All ranks give
  // one, or none does, which is for ranks of whom some can't do that; else they wait for each other
  // without end.
  virtual void Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank, int size,
                       std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
                       Clock::time_point deadline) = 0;
  // Lets go in peace: its buckets are done, then NCCL finishes what other ranks still want of this
  // one, and the communicator is gone. No event answers. After `deadline`, or if it has not been
  // connected yet or fails, as Abort. An Abort of a communicator that other ranks are still busy
  // with breaks theirs, be all buckets done here: what is on its way to them may be lost.
  virtual void Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline) = 0;
  // Takes effect before what was enqueued, also while the thread is in a call. Its buckets end
  // with kAborted, and the communicator is gone. One that has failed goes silently.
  virtual void Abort(DeviceCommunicatorId communicator, absl::string_view reason) = 0;

  // DeviceBucketEnded answers.
  virtual void Enqueue(DeviceBucket bucket) = 0;

  // Aborts everything, gives all back and ends the thread. False if that has not been done within
  // `patience`: the thread is left in its call. The process must end by _exit then, since the exit
  // handlers of the libraries may wait for the same thing. Later calls say the same at once.
  virtual bool Stop(std::chrono::milliseconds patience) = 0;
  bool Stop() { return Stop(kStopPatience); }

  virtual DeviceThreadActivity activity() const = 0;
  // Of communicators that are connected.
  virtual std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const = 0;

  static constexpr std::chrono::milliseconds kStopPatience{2000};
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_LAUNCHER_H_
