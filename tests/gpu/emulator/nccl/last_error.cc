#include "tests/gpu/emulator/nccl/last_error.h"

#include <cstdio>

#include "proto/base/mutex.h"

namespace ringd::emulator {
namespace {

Mutex& TextMutex() {
  static Mutex* const mutex = new Mutex;
  return *mutex;
}
// What the caller gets may be overwritten, as NCCL's own.
char text_kept[512] = "";

}  // namespace

void SetLastError(const std::string& text) {
  const MutexLock lock(TextMutex());
  std::snprintf(text_kept, sizeof text_kept, "%s", text.c_str());
}

const char* LastError() { return text_kept; }

}  // namespace ringd::emulator
