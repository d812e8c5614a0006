// The memory in which one communicator's collectives work, registered with NCCL.
#ifndef RINGD_BACKENDS_DEVICE_REGISTERED_BUFFERS_H_
#define RINGD_BACKENDS_DEVICE_REGISTERED_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/device_memory.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_slabs.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"

namespace ringd {

// Part of a DeviceCommunicator, which see. NCCL may work in registered memory directly. If one rank
// calls a collective with registered buffers, all ranks must; else the behavior is undefined (NCCL
// User Guide, User Buffer Registration). Whether a rank's bucket is packed or lies in its slab is
// that rank's own matter. So either all that a collective may name is registered on all ranks, the
// fusion buffer and the slabs, or nothing is on any. A rank learns only from NCCL whether its
// memory can be registered. So each tries, and then they agree by an all-reduce: of one number, the
// minimum, in memory that is not registered. That is a collective as any other, and those of all
// communicators on a GPU are launched in one order on all ranks (User Guide, Using multiple NCCL
// communicators concurrently). So it comes right before the communicator's first bucket.
//
// Thread safety: the GPU's thread alone. Nothing here waits for GPU, ranks or threads.
// Ownership: borrows stream, communicator and slabs, which outlive it. Holds each registered slab
//   (DeviceSlabs::AddRegistration) until it is deregistered or the communicator is gone.
// Invariant: after Agree, all that a collective names is registered here, or nothing.
class RegisteredBuffers {
 public:
  struct Parts {
    std::shared_ptr<const CudaContext> context;
    const CudaStream* stream = nullptr;
    DeviceSlabs* slabs = nullptr;
    int size = 1;  // of the communicator
    // What is registered to begin with; the slab need not be there.
    DeviceAddress fusion = 0;
    std::size_t fusion_bytes = 0;
    DeviceSlabId slab;
  };

  // Use follows. As CudaStatus says.
  static absl::StatusOr<std::unique_ptr<RegisteredBuffers>> Create(const Parts& parts);

  void Use(NcclCommunicator* nccl) noexcept { nccl_ = nccl; }

  bool has_agreed() const noexcept { return step_ == Step::kAgreed; }
  // The ranks begin to agree, by the deadline of the bucket that waits for it. All ranks of the
  // communicator do that, or none. No effect if they have begun.
  void BeginAgreeing(Clock::time_point deadline) {
    if (!deadline_) deadline_ = deadline;
  }
  bool is_agreeing() const noexcept { return deadline_.has_value(); }
  // For NCCL to put the all-reduce on the stream; then the ranks wait for each other.
  bool is_launching() const noexcept { return is_agreeing() && step_ == Step::kLaunching; }
  // Asks NCCL and the GPU, and goes on with registering and agreeing.
  //   Not ok: the communicator has to be failed. Precondition: is_agreeing().
  absl::Status AdvanceAgreeing(Clock::time_point now);
  // The communicator has failed.
  void StopAgreeing() noexcept { deadline_.reset(); }
  // Whether they have agreed since it was asked last; NCCL describes what is registered.
  bool TakeAgreed() noexcept { return std::exchange(has_news_, false); }

  // Before a bucket is launched: registers the slabs of its tensors that are new, if the ranks have
  // agreed to. Calls nothing otherwise.
  //   Not ok: the communicator has to be failed, since other ranks' buffers are registered.
  //   Precondition: NCCL is ready.
  absl::Status Cover(std::span<const DeviceTensor> tensors);

  // Deregisters slabs that nothing else keeps; or all memory.
  //   Not ok: the communicator has to be failed, and memory stays until it is gone.
  //   Precondition: NCCL is ready, and no bucket in flight.
  absl::Status DeregisterLeaving();
  absl::Status DeregisterAll();

  // The communicator is gone, and its registrations with it.
  void Forget();

 private:
  enum class Step { kTry, kLaunching, kWaiting, kAgreed };
  struct Registered {
    std::optional<DeviceSlabId> slab;  // none: the fusion buffer
    NcclRegistration registration;
  };

  explicit RegisteredBuffers(const Parts& parts) : parts_(parts) {}

  // The next step. Precondition: NCCL is ready.
  absl::Status Agree();
  absl::Status RegisterAll();
  absl::Status RegisterSlab(DeviceSlabId id);
  absl::Status Deregister(const Registered& one);
  absl::Status LaunchQuestion();
  absl::Status LaunchAnswer();
  absl::Status Conclude(bool all_can);

  const Parts parts_;
  NcclCommunicator* nccl_ = nullptr;
  Step step_ = Step::kTry;
  std::optional<Clock::time_point> deadline_;  // while the ranks agree
  bool has_news_ = false;
  bool is_on_ = false;
  absl::Status tried_;  // why this rank can't
  // The number that the ranks reduce: 1 if this rank can, else 0.
  PinnedMemory on_host_;
  DeviceMemory on_gpu_;
  std::optional<CudaEvent> answered_;
  std::vector<Registered> all_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_REGISTERED_BUFFERS_H_
