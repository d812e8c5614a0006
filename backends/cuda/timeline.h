// Values in device memory that order the streams of two processes: a stream of one writes, a stream
// of the other waits. No handle for each operation, no answer, and no host waits.
#ifndef RINGD_BACKENDS_CUDA_TIMELINE_H_
#define RINGD_BACKENDS_CUDA_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/cuda_stream.h"

namespace ringd {

// The layout, version 1: the first kTimelineBytes of a slab. Slot i is the 8 bytes at
// i * kTimelineSlotBytes, a line of the GPU's cache for itself. Slot 0 has kTimelineMagic. All
// other slots begin with 0. A slot has one writer, but for Release; its values only grow.
inline constexpr std::uint64_t kTimelineMagic = 0x52494e4744544c01;  // "RINGDTL", version 1
inline constexpr std::size_t kTimelineSlotBytes = 64;
inline constexpr std::uint32_t kTimelineSlots = 8192;
inline constexpr std::size_t kTimelineBytes = kTimelineSlotBytes * kTimelineSlots;

// Each operation in flight has two slots: in one the trainer says that its tensor is ready, in the
// other the engine that the result is there. (One pair for each stream would not do: operations end
// in the order in which all ranks have come, not in that of a stream.)
inline constexpr std::uint32_t kTimelinePairs = kTimelineSlots / 2 - 1;
// Precondition: pair < kTimelinePairs.
constexpr std::uint32_t ReadySlot(std::uint32_t pair) noexcept { return 2 * pair + 2; }
constexpr std::uint32_t DoneSlot(std::uint32_t pair) noexcept { return 2 * pair + 3; }

// Ends every wait. CUDA compares cyclically ((int64_t)(found - wanted) >= 0: Driver API,
// cuStreamWaitValue64), so it is the largest positive number and not the largest one: to all-ones
// nobody would wait in vain, but everybody.
inline constexpr std::uint64_t kTimelineReleased = INT64_MAX;

// What may be signalled and waited for: 1 .. kTimelineReleased - 1.
constexpr bool IsTimelineValue(std::uint64_t value) noexcept {
  return value > 0 && value < kTimelineReleased;
}
constexpr bool IsTimelineSlot(std::uint32_t slot) noexcept {
  return slot > 0 && slot < kTimelineSlots;
}

// A value and where it lies in this process: see Timeline::At.
struct TimelineMark {
  DeviceAddress address = 0;
  std::uint64_t value = 0;
};

// Enqueues on `stream`: when all before is done and can be seen, the marks have their values; or,
// what follows waits until all of them have theirs, or more. The marks may be of several slabs.
// One call of the driver for 255 marks, which must be Timeline::At's. None blocks; any thread.
//   kInvalidArgument: `stream` is none of the context's GPU.  Others as CudaStatus says.
absl::Status SignalAll(const CudaContext& context, StreamHandle stream,
                       std::span<const TimelineMark> marks);
absl::Status WaitAll(const CudaContext& context, StreamHandle stream,
                     std::span<const TimelineMark> marks);

// The timeline in one slab, as one process sees it. Part of DeviceSlab and ImportedSlab.
//
// What another process writes is no more than a hint: a wait may end early or never. Who waits on a
// stream has a deadline, after which it calls Release.
//
// Thread safety: all methods on any thread. None but WaitReleased waits for the GPU.
// Ownership: shares the context; the slab must outlive what is enqueued.
class Timeline {
 public:
  // `base` is the slab's first byte. On a GPU without stream memory operations (CudaContext says
  // so) nothing can be enqueued: kFailedPrecondition.
  Timeline(std::shared_ptr<const CudaContext> context, DeviceAddress base)
      : context_(std::move(context)), base_(base) {}

  // Where a slot is, for SignalAll and WaitAll. kInvalidArgument: no such slot or value.
  absl::StatusOr<TimelineMark> At(std::uint32_t slot, std::uint64_t value) const;

  // Enqueues: when all before it on `stream` is done, and its writes can be seen, `slot` has
  // `value`.
  //   kInvalidArgument: no such slot or value, or `stream` is none of this GPU.
  //   Others as CudaStatus says.
  absl::Status Signal(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const;

  // Enqueues: what follows on `stream` waits until `slot` has `value` or more. Results as Signal.
  absl::Status Wait(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const;

  // Ends all waits for these slots, those of the other process, too, and those that come later: for
  // the survivor of two, or after a deadline. On the context's urgent stream, so that it passes
  // streams that wait. Enqueues; takes effect within microseconds if the GPU works.
  // All slots are tried; the first error is returned, as for Signal.
  absl::Status Release(std::span<const std::uint32_t> slots) const;

  // Waits until what Release has enqueued is done: before the slab's memory goes. Results as
  // CudaStream::WaitIdle.
  absl::Status WaitReleased(Clock::time_point deadline) const {
    return WaitIdle(*context_, context_->urgent_stream(), deadline);
  }

 private:
  std::shared_ptr<const CudaContext> context_;
  DeviceAddress base_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_TIMELINE_H_
