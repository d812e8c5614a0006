// Device memory of one session.
#ifndef RINGD_DAEMON_LANES_DEVICE_SESSION_SLAB_H_
#define RINGD_DAEMON_LANES_DEVICE_SESSION_SLAB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/cuda/timeline.h"
#include "backends/device/device_launcher.h"

namespace ringd {

// Who launches what is on a GPU: CUDA and NCCL are used by that process. kHost: nobody, since its
// trainer copies tensors to the host's memory and back.
enum class LaunchedBy : std::uint8_t { kEngine, kTrainer, kHost };

// A GPU without a slab: its trainer copies tensors to the host's memory and back.
struct HostPathGpu {
  std::string uuid;
  std::optional<bool> is_under_mps;
  std::string why;  // empty: that was asked for
};

// A slab that a GPU's launcher has made, and which GPU that is.
//
// Thread safety: immutable; may be destroyed on any thread, which does not block but with the last
//   slab of an engine that ends (DeviceThread).
// Ownership: of the slab. The destructor gives the memory back once no bucket in flight uses it.
class SessionSlab {
 public:
  SessionSlab(std::shared_ptr<DeviceLauncher> gpu, DeviceSlabId id, std::uint64_t bytes,
              std::string uuid, std::optional<bool> is_under_mps = std::nullopt,
              LaunchedBy launched_by = LaunchedBy::kEngine, bool registers = false)
      : gpu_(std::move(gpu)),
        id_(id),
        bytes_(bytes),
        uuid_(std::move(uuid)),
        is_under_mps_(is_under_mps),
        launched_by_(launched_by),
        registers_(registers) {}
  ~SessionSlab() { gpu_->ReleaseSlab(id_, {}); }
  SessionSlab(const SessionSlab&) = delete;
  SessionSlab& operator=(const SessionSlab&) = delete;

  const std::shared_ptr<DeviceLauncher>& gpu() const noexcept { return gpu_; }
  DeviceSlabId id() const noexcept { return id_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // with the timeline
  const std::string& uuid() const noexcept { return uuid_; }
  // Of the GPU, as CudaContext has it.
  std::optional<bool> is_under_mps() const noexcept { return is_under_mps_; }
  LaunchedBy launched_by() const noexcept { return launched_by_; }
  // DeviceOpened::registers.
  bool registers() const noexcept { return registers_; }

  // No result comes of the operation with this pair of the timeline: streams that wait for it go
  // on.
  void EndWaits(std::uint32_t pair) const {
    const std::uint32_t slot = DoneSlot(pair);
    gpu_->ReleaseSlots(id_, {&slot, 1});
  }

  // Whether such a range may hold a tensor: behind the timeline, before the end.
  bool Holds(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return offset >= kTimelineBytes && bytes <= bytes_ && offset <= bytes_ - bytes;
  }

 private:
  const std::shared_ptr<DeviceLauncher> gpu_;
  const DeviceSlabId id_;
  const std::uint64_t bytes_;
  const std::string uuid_;
  const std::optional<bool> is_under_mps_;
  const LaunchedBy launched_by_;
  const bool registers_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_DEVICE_SESSION_SLAB_H_
