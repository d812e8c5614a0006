// The emulated CUDA driver, as the emulated NCCL uses it: the one that the process has opened.
#ifndef RINGD_TESTS_GPU_EMULATOR_NCCL_CUDA_ACCESS_H_
#define RINGD_TESTS_GPU_EMULATOR_NCCL_CUDA_ACCESS_H_

#include <array>
#include <memory>

#include "backends/cuda/cuda_driver.h"
#include "tests/gpu/emulator/cuda/emulator_api.h"

namespace ringd::emulator {

using Uuid = std::array<char, 16>;

struct CudaAccess {
  // Null, with an error for ncclGetLastError, unless the process has opened the emulated driver.
  // Never opens another one: a real GPU must not be touched by a test.
  static const CudaAccess* Find();

  // The ordinal of the current context's device. As CUDA's run time does, makes the primary context
  // of device 0 current if there is none. -1: CUDA fails.
  int CurrentDevice() const;
  // False: CUDA fails.
  bool UuidOf(int device, Uuid* uuid) const;

  // Of its compute capability; -1: CUDA fails.
  int ComputeMajorOf(int device) const;

  // Page-locked memory that any GPU may use; null if CUDA fails.
  void* AllocateHost(int device) const;
  // Waits for all that the process has on the device, as cuMemFreeHost does. Null is none.
  void FreeHost(int device, void* memory) const;

  std::unique_ptr<const CudaDriver> driver;
  decltype(&ringd_emulator_device_alias) alias = nullptr;
  decltype(&ringd_emulator_enqueue) enqueue = nullptr;
  decltype(&ringd_emulator_stream_device) stream_device = nullptr;
};

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_NCCL_CUDA_ACCESS_H_
