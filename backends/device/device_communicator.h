// One NCCL communicator with the stream on which its buckets run.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_COMMUNICATOR_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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
#include "backends/cuda/mapped_memory.h"
#include "backends/cuda/move_kernel.h"
#include "backends/cuda/timeline.h"
#include "backends/device/bucket_plan.h"
#include "backends/device/device_bucket.h"
#include "backends/device/device_event.h"
#include "backends/device/device_slabs.h"
#include "backends/device/gpu_parts.h"
#include "backends/device/registered_buffers.h"
#include "backends/nccl/nccl_communicator.h"
#include "proto/base/clock.h"

namespace ringd {

// Part of a GPU's thread, which see: what happens to a bucket is said there. Buckets are launched
// one after the other, and end in that order.
//
// Thread safety: the GPU's thread alone, with its context current. No method waits for GPU, ranks
//   or threads, but the destructor: for the GPU's work of all communicators, since it frees memory.
// Ownership: shares context, kernel and functions; `slabs` outlive it.
// Invariant: each bucket that was taken has one end, appended by Advance or by IsDrained.
class DeviceCommunicator {
 public:
  struct Parts {
    GpuParts gpu;
    DeviceSlabs* slabs = nullptr;
    std::string fusion_setting;
    std::function<void(std::span<const TimelinePoint>)> on_launched;  // as DeviceThreadOptions
  };

  enum class Phase { kConnecting, kReady, kLeaving, kFailed };

  // Before a stall is asked about; no ordinary step notices.
  static constexpr std::chrono::milliseconds kLongAwaited{500};

  // What became of a bucket that was offered.
  enum class Verdict {
    kTaken,    // and moved from
    kLater,    // as it was: offer it again
    kRefused,  // for what it is; nothing was done
    kFailed,   // taken, and the communicator has to be failed
  };

  // Allocates, and begins to meet the other ranks. `registered_slab`: as DeviceLauncher::Connect.
  //   kResourceExhausted: no memory for `fusion_bytes`; the message names the setting.
  //   Others as CudaStatus and NcclStatus say.
  static absl::StatusOr<std::unique_ptr<DeviceCommunicator>> Begin(
      const Parts& parts, DeviceCommunicatorId id, const NcclCommunicator::Spec& spec,
      std::size_t fusion_bytes, std::optional<DeviceSlabId> registered_slab,
      Clock::time_point connect_deadline);

  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  DeviceCommunicatorId id() const noexcept { return id_; }
  Phase phase() const noexcept { return phase_; }
  const std::shared_ptr<NcclCommunicator>& nccl() const noexcept { return nccl_; }
  bool is_launching() const noexcept {
    return launching_.has_value() || (registered_ != nullptr && registered_->is_launching());
  }
  bool has_work() const noexcept {
    return launching_.has_value() || is_agreeing() || !in_flight_.empty();
  }
  // Whether the ranks have agreed since it was asked last; nccl() describes what is registered.
  bool TakeAgreed() noexcept { return registered_ != nullptr && registered_->TakeAgreed(); }
  // What there is to tell since the last call.
  std::optional<DeviceBucketAwaits> TakeAwaits() noexcept { return std::exchange(awaits_, {}); }
  // Ok, or the fatal error of CUDA's that a call has met: as CudaStatus says, kAborted.
  const absl::Status& device_error() const noexcept { return device_error_; }
  // The same, and asks the GPU now: NCCL says no more of it than "unhandled CUDA error".
  const absl::Status& FindDeviceError();
  // Why it has failed, and when.
  const absl::Status& failure() const noexcept { return failure_; }
  Clock::time_point failed_at() const noexcept { return failed_at_; }

  // Starts to launch. `status` is the reason of kRefused and kFailed. The first bucket has to come
  // later: before it the ranks agree whether their memory is registered.
  // Precondition: kReady and not is_launching().
  Verdict Offer(DeviceBucket* bucket, Clock::time_point now, absl::Status* status);

  // Looks how far all is: connects, finishes a launch, appends the ends of what is done to `ended`.
  // Not ok: it has to be failed, for that reason.
  absl::Status Advance(Clock::time_point now, std::vector<DeviceBucketEnded>* ended);

  // Lets go in peace, step by step: true when the communicator is gone. Not ok: it has to be
  // failed. Precondition: kReady or kLeaving, and not has_work().
  absl::StatusOr<bool> Leave();

  // Gives up all buckets in flight, and `queued`, which were not offered yet, for the reason
  // `status`. Does nothing after the first time.
  void Fail(const absl::Status& status, std::vector<DeviceBucket> queued);

  // After Fail: releases the slots of all those buckets, once; false: it is too early. Where
  // tensors of this rank may not be ready, the stream would go on and hand them to the others: they
  // get time to hear of the failure before.
  bool Release(Clock::time_point now);

  // Signals the results of a bucket that was refused, behind what is launched: they will never
  // come, and streams that wait must go on. Precondition: kReady and not is_launching().
  void SignalRefused(const DeviceBucket& bucket);

  // Whether the GPU is done with all that was launched. NCCL is told to abort; before, all
  // communicators of the GPU that have failed must have been released (Release): ncclCommAbort may
  // wait for the streams that wait for their slots. When ncclCommAbort has returned
  // it releases the slots again and again, since a stream that was let go may write to them. Before
  // that it makes no call of the driver. Appends the buckets' ends to `ended` when that is so: from
  // then on nothing touches their memory. Or after a second, if the GPU does not end what was
  // aborted.
  bool IsDrained(Clock::time_point now, std::vector<DeviceBucketEnded>* ended);

  // Whether its stream has nothing to do.
  bool IsIdle();

 private:
  struct Bucket {
    DeviceBucket bucket;
    BucketPlan plan;
    DeviceAddress table = 0;
    std::uint64_t number = 0;
    std::vector<DeviceSlabId> slabs;  // in use, each once
    std::optional<CudaEvent> ready;
    std::optional<CudaEvent> done;
    DeviceBucketTimes times;
    Clock::time_point first_since;  // in flight, and not seen ready; the epoch: not yet
    bool awaits_told = false;
  };

  DeviceCommunicator(const Parts& parts, DeviceCommunicatorId id, CudaStream stream)
      : parts_(parts), id_(id), stream_(std::move(stream)), tables_(parts.gpu.context, stream_) {}

  bool is_agreeing() const noexcept { return registered_ != nullptr && registered_->is_agreeing(); }
  absl::Status CheckPoints(const DeviceBucket& bucket) const;
  const std::vector<TimelineMark>& MarksOf(const std::vector<TimelinePoint>& points);
  // Also remembers a fatal error.
  absl::Status Note(absl::Status status);
  // kUnavailable: later. Else its failure.
  absl::Status FindTable(Bucket* bucket);
  absl::Status LaunchFirstHalf(Bucket* bucket);
  absl::Status LaunchSecondHalf(Bucket* bucket);
  absl::Status Connect(Clock::time_point now);
  absl::Status FinishLaunch(Clock::time_point now);
  absl::Status Collect(Clock::time_point now, std::vector<DeviceBucketEnded>* ended);
  absl::Status LookWhetherReady(Clock::time_point now);
  absl::Status CheckDeadline(Clock::time_point now) const;
  absl::Status TakeEvent(std::optional<CudaEvent>* event);
  // Whether a launched bucket may wait for the tensors of this rank.
  bool AwaitsTensors() const;
  void Retire(Bucket* bucket);
  void ReleaseSlots();
  void EndLingering(std::vector<DeviceBucketEnded>* ended);

  const Parts parts_;
  const DeviceCommunicatorId id_;
  const CudaStream stream_;
  FusionBuffer fusion_;
  MappedMemory fusion_memory_;
  MoveTables tables_;
  std::shared_ptr<NcclCommunicator> nccl_;
  std::unique_ptr<RegisteredBuffers> registered_;  // null: nothing is to be registered
  int size_ = 1;
  Clock::time_point connect_deadline_;
  Phase phase_ = Phase::kConnecting;
  std::vector<CudaEvent> free_events_;
  // Of one bucket, kept for their memory.
  std::vector<MoveSegment> segments_;
  std::vector<TimelineMark> marks_;
  std::uint64_t numbered_ = 0;
  std::uint64_t finished_ = 0;  // all buckets up to this number are
  bool is_destroying_ = false;
  std::optional<Bucket> launching_;
  std::deque<Bucket> in_flight_;
  std::optional<DeviceBucketAwaits> awaits_;
  absl::Status failure_;
  Clock::time_point failed_at_;
  absl::Status device_error_;
  // After Fail: what the GPU may still be at.
  std::vector<Bucket> lingering_;
  Clock::time_point release_at_;
  bool is_released_ = false;
  Clock::time_point next_release_;
  bool is_drained_ = false;
  bool has_ended_all_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_COMMUNICATOR_H_
