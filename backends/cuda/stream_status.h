// What it means that the driver refuses to put something on a stream that somebody else has made.
#ifndef RINGD_BACKENDS_CUDA_STREAM_STATUS_H_
#define RINGD_BACKENDS_CUDA_STREAM_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "backends/cuda/cuda_context.h"
#include "backends/cuda/cuda_driver.h"

namespace ringd {

// As CudaStatus, but a wrong stream is its owner's mistake (kInvalidArgument), where CUDA's other
// errors are not.
inline absl::Status StreamStatus(const CudaContext& context, const char* what, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  absl::Status status = CudaStatus(context.driver(), what, result);
  if (result != CUDA_ERROR_INVALID_HANDLE && result != CUDA_ERROR_INVALID_CONTEXT &&
      result != CUDA_ERROR_INVALID_VALUE) {
    return status;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the stream is none of GPU ", context.uuid(), ": ", status.message()));
}

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_STREAM_STATUS_H_
