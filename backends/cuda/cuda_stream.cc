#include "backends/cuda/cuda_stream.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/stream_status.h"

namespace ringd {
namespace {

constexpr std::chrono::microseconds kPause{50};

}  // namespace

absl::StatusOr<CudaStream> CudaStream::Create(std::shared_ptr<const CudaContext> context) {
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context->driver();
  CUstream handle = nullptr;
  if (auto status = CudaStatus(
          cuda, "cuStreamCreateWithPriority",
          cuda.cuStreamCreateWithPriority(&handle, CU_STREAM_NON_BLOCKING, kHighestStreamPriority));
      !status.ok()) {
    return status;
  }
  return CudaStream(std::move(context), handle);
}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  if (this == &other) return *this;
  Destroy();
  context_ = std::move(other.context_);
  handle_ = std::exchange(other.handle_, nullptr);
  return *this;
}

void CudaStream::Destroy() noexcept {
  if (handle_ == nullptr) return;
  const ScopedContext current(*context_);
  context_->driver().cuStreamDestroy(static_cast<CUstream>(handle_));
  handle_ = nullptr;
}

absl::Status WaitIdle(const CudaContext& context, StreamHandle stream, Clock::time_point deadline) {
  const ScopedContext current(context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context.driver();
  for (;;) {
    const CUresult result = cuda.cuStreamQuery(static_cast<CUstream>(stream));
    if (result != CUDA_ERROR_NOT_READY) return CudaStatus(cuda, "cuStreamQuery", result);
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("GPU ", context.uuid(), " has not done its work in time"));
    }
    std::this_thread::sleep_for(kPause);
  }
}

absl::StatusOr<CudaEvent> CudaEvent::Create(std::shared_ptr<const CudaContext> context) {
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context->driver();
  CUevent handle = nullptr;
  if (auto status =
          CudaStatus(cuda, "cuEventCreate", cuda.cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING));
      !status.ok()) {
    return status;
  }
  return CudaEvent(std::move(context), handle);
}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  if (this == &other) return *this;
  Destroy();
  context_ = std::move(other.context_);
  handle_ = std::exchange(other.handle_, nullptr);
  return *this;
}

void CudaEvent::Destroy() noexcept {
  if (handle_ == nullptr) return;
  const ScopedContext current(*context_);
  context_->driver().cuEventDestroy(static_cast<CUevent>(handle_));
  handle_ = nullptr;
}

absl::Status CudaEvent::Record(StreamHandle stream) const {
  const ScopedContext current(*context_);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context_->driver();
  return CudaStatus(
      cuda, "cuEventRecord",
      cuda.cuEventRecord(static_cast<CUevent>(handle_), static_cast<CUstream>(stream)));
}

absl::Status CudaEvent::HoldUp(StreamHandle stream) const {
  const ScopedContext current(*context_);
  if (!current.status().ok()) return current.status();
  return StreamStatus(
      *context_, "cuStreamWaitEvent",
      context_->driver().cuStreamWaitEvent(static_cast<CUstream>(stream),
                                           static_cast<CUevent>(handle_), CU_EVENT_WAIT_DEFAULT));
}

absl::StatusOr<bool> CudaEvent::IsReached() const {
  const ScopedContext current(*context_);
  if (!current.status().ok()) return current.status();
  const CudaDriver& cuda = context_->driver();
  const CUresult result = cuda.cuEventQuery(static_cast<CUevent>(handle_));
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) return CudaStatus(cuda, "cuEventQuery", result);
  return true;
}

}  // namespace ringd
