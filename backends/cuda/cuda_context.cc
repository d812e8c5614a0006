#include "backends/cuda/cuda_context.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/gpu_uuid.h"

namespace ringd {
namespace {

absl::StatusOr<int> CountGpus(const CudaDriver& cuda) {
  int count = 0;
  if (auto status = CudaStatus(cuda, "cuDeviceGetCount", cuda.cuDeviceGetCount(&count));
      !status.ok()) {
    return status;
  }
  return count;
}

absl::StatusOr<std::string> UuidOf(const CudaDriver& cuda, int ordinal) {
  CUdevice device = 0;
  if (auto status = CudaStatus(cuda, "cuDeviceGet", cuda.cuDeviceGet(&device, ordinal));
      !status.ok()) {
    return status;
  }
  std::string name;
  std::string uuid;
  if (auto status = IdentifyGpu(cuda, device, &name, &uuid); !status.ok()) return status;
  return uuid;
}

}  // namespace

void SetCudaEnvironment() {
  constexpr int kKeep = 0;
  // NOLINTBEGIN(concurrency-mt-unsafe): the process has no threads yet.
  const bool names_mps = std::getenv("CUDA_MPS_PIPE_DIRECTORY") != nullptr;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", names_mps ? "8" : "32", kKeep);
  // NOLINTEND(concurrency-mt-unsafe)
}

absl::StatusOr<std::shared_ptr<const CudaDriver>> OpenCudaDriver(const std::string& file) {
  auto opened = CudaDriver::Open(file);
  if (!opened.ok()) return opened.status();
  std::shared_ptr<const CudaDriver> driver = *std::move(opened);
  if (auto status = CudaStatus(*driver, "cuInit", driver->cuInit(0)); !status.ok()) return status;
  return driver;
}

absl::StatusOr<std::shared_ptr<const CudaContext>> CudaContext::OpenByUuid(
    std::shared_ptr<const CudaDriver> driver, absl::string_view uuid) {
  const absl::StatusOr<int> count = CountGpus(*driver);
  if (!count.ok()) return count.status();
  std::string there;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    const absl::StatusOr<std::string> found = UuidOf(*driver, ordinal);
    if (!found.ok()) return found.status();
    if (*found == uuid) return Open(std::move(driver), ordinal);
    absl::StrAppend(&there, there.empty() ? "" : ", ", *found);
  }
  return absl::NotFoundError(absl::StrCat("there is no GPU ", uuid, " for this process, but ",
                                          there.empty() ? "none" : there));
}

absl::StatusOr<std::shared_ptr<const CudaContext>> CudaContext::Open(
    std::shared_ptr<const CudaDriver> driver, int ordinal) {
  const CudaDriver& cuda = *driver;
  const absl::StatusOr<int> count = CountGpus(cuda);
  if (!count.ok()) return count.status();
  if (ordinal < 0 || ordinal >= *count) {
    return absl::NotFoundError(
        absl::StrCat("there is no GPU ", ordinal, " for this process: it has ", *count));
  }
  const absl::StatusOr<std::string> uuid = UuidOf(cuda, ordinal);
  if (!uuid.ok()) return uuid.status();
  int multiprocessors = 0;
  int compute_major = 0;
  for (const auto& [attribute, value] :
       {std::pair(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors),
        std::pair(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &compute_major)}) {
    const CUresult result = cuda.cuDeviceGetAttribute(value, attribute, ordinal);
    if (auto status = CudaStatus(cuda, "cuDeviceGetAttribute", result); !status.ok()) return status;
  }
  int has_memory_operations = 0;
  const CUresult told = cuda.cuDeviceGetAttribute(
      &has_memory_operations, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, ordinal);
  int mps = 0;
  const CUresult told_mps =
      cuda.cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, ordinal);
  CUcontext handle = nullptr;
  if (auto status = CudaStatus(cuda, absl::StrCat("cuDevicePrimaryCtxRetain of ", *uuid),
                               cuda.cuDevicePrimaryCtxRetain(&handle, ordinal));
      !status.ok()) {
    return status;
  }
  std::shared_ptr<CudaContext> context(new CudaContext);
  context->driver_ = std::move(driver);
  context->ordinal_ = ordinal;
  context->uuid_ = *uuid;
  context->multiprocessors_ = multiprocessors;
  context->compute_major_ = compute_major;
  context->has_stream_memory_operations_ = told == CUDA_SUCCESS && has_memory_operations == 1;
  if (told_mps == CUDA_SUCCESS) context->is_under_mps_ = mps == 1;
  context->handle_ = handle;
  const ScopedContext current(*context);
  if (!current.status().ok()) return current.status();
  CUstream stream = nullptr;
  if (auto status = CudaStatus(context->driver(), "cuStreamCreateWithPriority",
                               context->driver().cuStreamCreateWithPriority(
                                   &stream, CU_STREAM_NON_BLOCKING, kHighestStreamPriority));
      !status.ok()) {
    return status;
  }
  context->urgent_stream_ = stream;
  return std::shared_ptr<const CudaContext>(std::move(context));
}

CudaContext::~CudaContext() {
  if (urgent_stream_ != nullptr) {
    const ScopedContext current(*this);
    driver_->cuStreamDestroy(static_cast<CUstream>(urgent_stream_));
  }
  if (handle_ != nullptr) driver_->cuDevicePrimaryCtxRelease(ordinal_);
}

void CudaContext::IgnoreCaptures() const noexcept {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  // If it fails, all is as before.
  static_cast<void>(driver_->cuThreadExchangeStreamCaptureMode(&mode));
}

absl::Status CudaContext::CheckNotCapturing(StreamHandle stream) const {
  const ScopedContext current(*this);
  if (!current.status().ok()) return current.status();
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = driver_->cuStreamIsCapturing(static_cast<CUstream>(stream), &capture);
  if (auto status = CudaStatus(*driver_, "cuStreamIsCapturing", asked); !status.ok()) return status;
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the stream is capturing a CUDA graph: a collective of ringd's can't be part of one");
}

ScopedContext::ScopedContext(const CudaContext& context) : context_(context) {
  const CudaDriver& cuda = context.driver();
  CUcontext before = nullptr;
  status_ = CudaStatus(cuda, "cuCtxGetCurrent", cuda.cuCtxGetCurrent(&before));
  if (!status_.ok() || before == context.handle()) return;
  status_ = CudaStatus(cuda, "cuCtxSetCurrent",
                       cuda.cuCtxSetCurrent(static_cast<CUcontext>(context.handle())));
  before_ = before;
  must_restore_ = status_.ok();
}

ScopedContext::~ScopedContext() {
  if (must_restore_) context_.driver().cuCtxSetCurrent(static_cast<CUcontext>(before_));
}

}  // namespace ringd
