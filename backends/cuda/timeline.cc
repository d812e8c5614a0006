#include "backends/cuda/timeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"

namespace ringd {
namespace {

absl::Status CheckSlot(std::uint32_t slot) {
  if (IsTimelineSlot(slot)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a timeline has no slot ", slot));
}

absl::Status CheckPoint(std::uint32_t slot, std::uint64_t value) {
  if (auto status = CheckSlot(slot); !status.ok()) return status;
  if (IsTimelineValue(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a timeline does not have the value ", value));
}

// A wrong stream is its owner's mistake, where CUDA's other errors are not.
absl::Status StreamStatus(const CudaContext& context, const char* what, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  absl::Status status = CudaStatus(context.driver(), what, result);
  if (result != CUDA_ERROR_INVALID_HANDLE && result != CUDA_ERROR_INVALID_CONTEXT &&
      result != CUDA_ERROR_INVALID_VALUE) {
    return status;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the stream is none of GPU ", context.uuid(), ": ", status.message()));
}

}  // namespace

absl::StatusOr<Timeline> Timeline::Create(std::shared_ptr<const CudaContext> context,
                                          DeviceAddress base) {
  if (!context->has_stream_memory_operations()) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", context->uuid(),
                     " has no 64-bit stream memory operations, by which ringd orders streams"));
  }
  return Timeline(std::move(context), base);
}

absl::Status Timeline::Write(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const {
  const ScopedContext current(*context_);
  if (!current.status().ok()) return current.status();
  // With the default flags, all earlier writes of the stream can be seen before the value.
  return StreamStatus(*context_, "cuStreamWriteValue64",
                      context_->driver().cuStreamWriteValue64(
                          static_cast<CUstream>(stream), base_ + slot * kTimelineSlotBytes, value,
                          CU_STREAM_WRITE_VALUE_DEFAULT));
}

absl::Status Timeline::Signal(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const {
  if (auto status = CheckPoint(slot, value); !status.ok()) return status;
  return Write(stream, slot, value);
}

absl::Status Timeline::Wait(StreamHandle stream, std::uint32_t slot, std::uint64_t value) const {
  if (auto status = CheckPoint(slot, value); !status.ok()) return status;
  const ScopedContext current(*context_);
  if (!current.status().ok()) return current.status();
  return StreamStatus(*context_, "cuStreamWaitValue64",
                      context_->driver().cuStreamWaitValue64(static_cast<CUstream>(stream),
                                                             base_ + slot * kTimelineSlotBytes,
                                                             value, CU_STREAM_WAIT_VALUE_GEQ));
}

absl::Status Timeline::Release(std::span<const std::uint32_t> slots) const {
  absl::Status first;
  for (const std::uint32_t slot : slots) {
    absl::Status status = CheckSlot(slot);
    if (status.ok()) status = Write(context_->urgent_stream(), slot, kTimelineReleased);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace ringd
