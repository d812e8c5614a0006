#include "backends/cuda/timeline.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/stream_status.h"

namespace ringd {
namespace {

// Driver API, cuStreamBatchMemOp: less than 256.
constexpr std::size_t kMostInBatch = 255;

absl::Status CheckSlot(std::uint32_t slot) {
  if (IsTimelineSlot(slot)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a timeline has no slot ", slot));
}

CUstreamBatchMemOpParams Wait(const TimelineMark& mark) {
  CUstreamBatchMemOpParams one{};
  one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  one.waitValue.address = mark.address;
  one.waitValue.value64 = mark.value;
  one.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return one;
}

// With the default flags, all earlier writes of the stream can be seen before the value.
CUstreamBatchMemOpParams Write(const TimelineMark& mark) {
  CUstreamBatchMemOpParams one{};
  one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  one.writeValue.address = mark.address;
  one.writeValue.value64 = mark.value;
  one.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
  return one;
}

// One operation has a call of its own, which costs less.
CUresult Enqueue(const CudaDriver& cuda, CUstream stream, const CUstreamBatchMemOpParams& one) {
  if (one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
    return cuda.cuStreamWaitValue64(stream, one.waitValue.address, one.waitValue.value64,
                                    one.waitValue.flags);
  }
  return cuda.cuStreamWriteValue64(stream, one.writeValue.address, one.writeValue.value64,
                                   one.writeValue.flags);
}

absl::Status EnqueueAll(const CudaContext& context, StreamHandle stream,
                        std::span<const TimelineMark> marks,
                        CUstreamBatchMemOpParams (*make)(const TimelineMark&)) {
  const ScopedContext current(context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context.driver();
  auto* const on = static_cast<CUstream>(stream);
  CUstreamBatchMemOpParams batch[kMostInBatch];
  while (!marks.empty()) {
    const std::size_t count = std::min(marks.size(), kMostInBatch);
    std::transform(marks.begin(), marks.begin() + static_cast<std::ptrdiff_t>(count), batch, make);
    marks = marks.subspan(count);
    const CUresult result =
        count == 1 ? Enqueue(cuda, on, batch[0])
                   : cuda.cuStreamBatchMemOp(on, static_cast<unsigned>(count), batch, 0);
    if (auto status = StreamStatus(context, "a stream memory operation", result); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SignalAll(const CudaContext& context, StreamHandle stream,
                       std::span<const TimelineMark> marks) {
  return EnqueueAll(context, stream, marks, Write);
}

absl::Status WaitAll(const CudaContext& context, StreamHandle stream,
                     std::span<const TimelineMark> marks) {
  return EnqueueAll(context, stream, marks, Wait);
}

absl::StatusOr<TimelineMark> Timeline::At(std::uint32_t slot, std::uint64_t value) const {
  if (auto status = CheckSlot(slot); !status.ok()) return status;
  if (!IsTimelineValue(value)) {
    return absl::InvalidArgumentError(absl::StrCat("a timeline does not have the value ", value));
  }
  return TimelineMark{base_ + slot * kTimelineSlotBytes, value};
}

absl::Status Timeline::Signal(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const {
  const auto mark = At(slot, value);
  return mark.ok() ? SignalAll(*context_, stream, std::span(&*mark, 1)) : mark.status();
}

absl::Status Timeline::Wait(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const {
  const auto mark = At(slot, value);
  return mark.ok() ? WaitAll(*context_, stream, std::span(&*mark, 1)) : mark.status();
}

absl::Status Timeline::Release(std::span<const std::uint32_t> slots) const {
  absl::Status first;
  std::vector<TimelineMark> marks;
  for (const std::uint32_t slot : slots) {
    if (auto status = CheckSlot(slot); !status.ok()) {
      if (first.ok()) first = std::move(status);
    } else {
      marks.push_back({base_ + slot * kTimelineSlotBytes, kTimelineReleased});
    }
  }
  absl::Status written = SignalAll(*context_, context_->urgent_stream(), marks);
  return first.ok() ? written : first;
}

}  // namespace ringd
