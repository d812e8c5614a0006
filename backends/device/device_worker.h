// What the thread of a GPU does, without the thread.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_WORKER_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_WORKER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "backends/cuda/cuda_context.h"
#include "backends/device/communicator_registry.h"
#include "backends/device/device_communicator.h"
#include "backends/device/device_event.h"
#include "backends/device/device_slabs.h"
#include "backends/device/device_step.h"
#include "backends/device/device_thread.h"
#include "backends/device/gpu_parts.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"

namespace ringd {

// Part of DeviceThread, which see: the methods of the same names do what is said there.
//
// Thread safety: one thread, from Open to the destructor; registry(), KeepSlabs() and activity() on
//   any.
class DeviceWorker {
 public:
  using Emit = std::function<void(DeviceEvent)>;

  // `emit` is called on the worker's thread, for each event.
  DeviceWorker(DeviceThreadOptions options, Emit emit);
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  void Open();
  void CreateSlab(DeviceSlabId id, std::size_t bytes);
  void ReleaseSlab(DeviceSlabId id, std::span<const std::uint32_t> slots);
  void ReleaseSlots(DeviceSlabId id, std::span<const std::uint32_t> slots);
  void CreateId(std::uint64_t request);
  void Connect(DeviceCommunicatorId id, const NcclIdBytes& nccl_id, int rank, int size,
               std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
               Clock::time_point deadline);
  void Disconnect(DeviceCommunicatorId id, Clock::time_point deadline);
  void Abort(DeviceCommunicatorId id, absl::string_view reason);
  void Enqueue(DeviceBucket bucket);

  // Launches and looks what has come to pass. Returns how long to sleep if nothing is asked for.
  std::chrono::microseconds Progress(Clock::time_point now);

  // As DeviceThread's; any thread.
  void KeepSlabs() noexcept { keeps_slabs_.store(true, std::memory_order_release); }

  // Ends everything. What the GPU is not done with by `deadline` is left as it is.
  void Shutdown(Clock::time_point deadline);

  // What other threads may do with communicators meanwhile; the worker's Abort follows.
  CommunicatorRegistry& registry() noexcept { return registry_; }
  const CommunicatorRegistry& registry() const noexcept { return registry_; }
  DeviceThreadActivity activity() const { return steps_.Get(); }

 private:
  void Answer(DeviceSlabCreated created);
  void CancelSlabs();  // those that wait for memory
  DeviceCommunicator* Find(DeviceCommunicatorId id);
  // Whether another launch must be over, or another communicator's buckets, before one of `next`.
  bool MustWait(const DeviceCommunicator& next) const;
  // Launches from the queue's front what can be launched.
  void LaunchQueued(Clock::time_point now);
  // Ends a bucket that was never launched, and releases who waits for it.
  void GiveUp(const DeviceBucket& bucket, const absl::Status& status);
  void Fail(DeviceCommunicator* communicator, const absl::Status& status);
  // Takes the buckets of a communicator out of the queue.
  std::vector<DeviceBucket> TakeQueued(DeviceCommunicatorId id);
  void LoseDevice(const absl::Status& status);
  void EmitEnded(std::vector<DeviceBucketEnded>* ended);
  // Looks after the communicators that the owner has disconnected.
  void LetGo(Clock::time_point now);
  void Forget(DeviceCommunicatorId id);
  // Looks after the communicators that have failed. True while the GPU is not done with them.
  bool SweepFailed(Clock::time_point now);
  void SweepSlabs();
  bool HasWork() const;

  const DeviceThreadOptions options_;
  const Emit emit_;
  // Why nothing can be done; Ok after Open has succeeded and until the GPU is lost.
  absl::Status unusable_;
  bool is_lost_ = false;
  GpuParts gpu_;
  std::optional<ScopedContext> current_;
  DeviceSlabs slabs_;
  std::atomic<bool> keeps_slabs_{false};  // KeepSlabs releases, Shutdown acquires
  std::map<DeviceCommunicatorId, std::unique_ptr<DeviceCommunicator>> communicators_;
  // Disconnected by the owner; until then they may take to leave.
  std::map<DeviceCommunicatorId, Clock::time_point> leaving_;
  // Aborted by the owner, and not drained yet; then drained, until freeing their memory waits for
  // nothing.
  std::vector<std::unique_ptr<DeviceCommunicator>> closing_;
  std::vector<std::unique_ptr<DeviceCommunicator>> drained_;
  std::deque<DeviceBucket> queue_;
  std::chrono::microseconds pause_{0};

  CommunicatorRegistry registry_;
  DeviceSteps steps_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_WORKER_H_
