// The text of ncclGetLastError, one for the whole process, as in NCCL.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_LAST_ERROR_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_LAST_ERROR_H_

#include <string>

#include "backends/nccl/nccl_types.h"

namespace ringd::emulator {

// Any thread.
void SetLastError(const std::string& text);
const char* LastError();

// Keeps `text` and returns `result`.
inline NcclResult Failed(NcclResult result, const std::string& text) {
  SetLastError(text);
  return result;
}

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_LAST_ERROR_H_
