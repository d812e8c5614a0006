// The thread of one GPU, in an engine or a trainer: it makes every call of CUDA's and NCCL's there.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_THREAD_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_THREAD_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_event.h"
#include "backends/device/device_launcher.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"

namespace ringd {

struct DeviceThreadOptions {
  std::string cuda_library;  // as for OpenCudaDriver and OpenNccl
  std::string nccl_library;
  std::string gpu;             // UUID
  std::string slab_setting;    // names what says how large slabs are, for messages
  std::string fusion_setting;  // the same of Connect's `fusion_bytes`
  // Slabs are for another process, too: DeviceSlabCreated has a descriptor.
  bool exports_slabs = true;
  // Buckets of one communicator wait for those of another: NCCL may not keep their order
  // (NCCL_LAUNCH_ORDER_IMPLICIT).
  bool takes_turns = false;
  // Told on the thread, which it must not hold up: these results are on a stream, with all that
  // they need of this process. May come after the object has gone, if the thread was left in a
  // call.
  std::function<void(std::span<const TimelinePoint>)> on_launched = {};
};

// The thread makes every call of CUDA's and NCCL's for its GPU, in this process.
//
// Thread safety and ownership as DeviceLauncher.
class DeviceThread final : public DeviceLauncher {
 public:
  // Starts the thread, which opens libraries and GPU: DeviceOpened says how that went. `wake` is
  // called on it when there is an event after there was none; it must not block or call back.
  // event_fd() becomes readable, too.
  explicit DeviceThread(DeviceThreadOptions options, std::function<void()> wake = {});
  ~DeviceThread() override;
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Readable while TakeEvents has something.
  int event_fd() const noexcept;

  std::vector<DeviceEvent> TakeEvents() override;
  void CreateSlab(DeviceSlabId slab, std::size_t bytes) override;
  void ReleaseSlab(DeviceSlabId slab, std::span<const std::uint32_t> slots) override;
  void ReleaseSlots(DeviceSlabId slab, std::span<const std::uint32_t> slots) override;
  void CreateId(std::uint64_t request) override;
  void Connect(DeviceCommunicatorId communicator, const NcclIdBytes& id, int rank, int size,
               std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
               Clock::time_point deadline) override;
  void Disconnect(DeviceCommunicatorId communicator, Clock::time_point deadline) override;
  void Abort(DeviceCommunicatorId communicator, absl::string_view reason) override;
  void Enqueue(DeviceBucket bucket) override;
  using DeviceLauncher::Stop;
  bool Stop(std::chrono::milliseconds patience) override;
  // Stop without the wait, which may follow. Nothing is told any more.
  void BeginStop(std::chrono::milliseconds patience = kStopPatience);
  // For a process that is about to end, before Stop: streams of its own may still be about to use
  // the slabs. They stay until the process has ended, and who waits for results in them goes on.
  void KeepSlabs() noexcept;
  // Of the thread: Stop does not wait.
  bool has_ended() const;
  DeviceThreadActivity activity() const override;
  std::vector<std::pair<DeviceCommunicatorId, NcclDescription>> Describe() const override;

 private:
  class Worker;  // outlives this object while the thread is in a call
  std::shared_ptr<Worker> worker_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_THREAD_H_
