// What is registered with one communicator of this process.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_REGISTERED_MEMORY_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_REGISTERED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "proto/base/mutex.h"

namespace ringd::emulator {

struct RegisteredRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool is_symmetric = false;  // a window of NCCL_WIN_COLL_SYMMETRIC
};

// Thread safety: any thread. Ownership: of no memory.
class RegisteredMemory {
 public:
  // The handle is a counter, so that one that is gone is known as such.
  void* Add(const RegisteredRange& range);
  // The range of that handle, which is gone then.
  std::optional<RegisteredRange> Remove(void* handle);

  // The range in which all these bytes lie.
  std::optional<RegisteredRange> Find(const void* memory, std::size_t bytes) const;
  // Whether all of it is still memory of `device`.
  bool IsThere(int device) const;

 private:
  mutable Mutex mutex_;
  std::map<void*, RegisteredRange> ranges_ ABSL_GUARDED_BY(mutex_);
};

// Whether it is still memory of `device`.
bool IsMemoryOf(int device, const RegisteredRange& range);

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_REGISTERED_MEMORY_H_
