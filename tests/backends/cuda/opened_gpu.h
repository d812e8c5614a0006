// ringd's view of an emulated GPU, in a test's child.
#ifndef RINGD_TESTS_BACKENDS_CUDA_OPENED_GPU_H_
#define RINGD_TESTS_BACKENDS_CUDA_OPENED_GPU_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "backends/cuda/cuda_context.h"
#include "tests/gpu/emulator/cuda/emulated_process.h"

namespace ringd {

template <typename T>
T ValueOf(const emulator::Child& child, absl::StatusOr<T> made, const char* file, int line) {
  child.Check(made.ok(), made.status().ToString().c_str(), file, line);
  return *std::move(made);
}

inline void CheckStatus(const emulator::Child& child, const absl::Status& status, const char* file,
                        int line) {
  child.Check(status.ok(), status.ToString().c_str(), file, line);
}

inline void CheckRefused(const emulator::Child& child, absl::StatusCode code,
                         absl::string_view text, const absl::Status& status, const char* file,
                         int line) {
  const bool fits = status.code() == code && absl::StrContains(status.message(), text);
  child.Check(fits, status.ToString().c_str(), file, line);
}

// In a body, where `child` is what it was given. If the check fails, the child ends with the
// message: the value of what must not have failed; that a Status is ok; that it has this code, and
// a text in its message.
#define CHILD_VALUE(expression) ValueOf(child, (expression), __FILE__, __LINE__)
#define CHILD_STATUS(expression) CheckStatus(child, (expression), __FILE__, __LINE__)
#define CHILD_REFUSED(code, text, expression) \
  CheckRefused(child, (code), (text), (expression), __FILE__, __LINE__)

inline std::shared_ptr<const CudaContext> OpenGpu(const emulator::Child& child, int ordinal = 0) {
  auto driver = CHILD_VALUE(OpenCudaDriver(emulator::kLibrary));
  return CHILD_VALUE(CudaContext::Open(std::move(driver), ordinal));
}

}  // namespace ringd

#endif  // RINGD_TESTS_BACKENDS_CUDA_OPENED_GPU_H_
