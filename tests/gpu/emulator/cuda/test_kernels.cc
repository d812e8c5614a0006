// Kernels for the emulator's own tests.
#include <cuda.h>
#include <time.h>

#include <cstdint>

#include "tests/gpu/emulator/cuda/emulator_api.h"

namespace {

// __global__ void fill(uint64_t* target, uint64_t value, uint64_t count)
int Fill(const RingdEmulatorLaunch* launch, const void* const* parameters) {
  const auto target = *static_cast<const unsigned long long*>(parameters[0]);
  const auto value = *static_cast<const std::uint64_t*>(parameters[1]);
  const auto count = *static_cast<const std::uint64_t*>(parameters[2]);
  auto* const words = static_cast<std::uint64_t*>(
      launch->alias(launch->device, target, count * sizeof(std::uint64_t)));
  if (words == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (std::uint64_t i = 0; i < count; ++i) words[i] = value;
  return CUDA_SUCCESS;
}

// Says in words[0] how many of it run now, keeps the largest such number in words[1], and lasts for
// a millisecond.
int CountRunning(const RingdEmulatorLaunch* launch, const void* const* parameters) {
  const auto target = *static_cast<const unsigned long long*>(parameters[0]);
  auto* const words =
      static_cast<std::uint64_t*>(launch->alias(launch->device, target, 2 * sizeof(std::uint64_t)));
  if (words == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const std::uint64_t running = __atomic_add_fetch(&words[0], 1, __ATOMIC_SEQ_CST);
  std::uint64_t most = __atomic_load_n(&words[1], __ATOMIC_SEQ_CST);
  while (most < running && !__atomic_compare_exchange_n(&words[1], &most, running, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  const timespec millisecond{0, 1'000'000};
  ::nanosleep(&millisecond, nullptr);
  __atomic_sub_fetch(&words[0], 1, __ATOMIC_SEQ_CST);
  return CUDA_SUCCESS;
}

int FailAssertion(const RingdEmulatorLaunch*, const void* const*) { return CUDA_ERROR_ASSERT; }

constexpr std::size_t kWords[] = {8, 8, 8};

const RingdEmulatorKernel kTable[] = {{"fill", Fill, 3, kWords},
                                      {"count_running", CountRunning, 1, kWords},
                                      {"fail_assertion", FailAssertion, 0, nullptr},
                                      {nullptr, nullptr, 0, nullptr}};

}  // namespace

const RingdEmulatorKernel* ringd_emulator_kernels() { return kTable; }
