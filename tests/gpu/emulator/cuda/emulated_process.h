// A process with emulated GPUs, for tests: settings are read once in a process, and many rules are
// about how one ends.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_EMULATED_PROCESS_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_EMULATED_PROCESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "backends/cuda/cuda_driver.h"
#include "proto/base/unique_fd.h"
#include "tests/gpu/emulator/cuda/emulator_api.h"

namespace ringd::emulator {

// The library, from the runfiles' root.
inline constexpr char kLibrary[] = "tests/gpu/emulator/cuda/libcuda.so.1";
inline constexpr char kKernels[] = "tests/gpu/emulator/cuda/libtest_kernels.so";

// emulator_api.h's functions, looked up in the library.
struct EmulatorApi {
  decltype(&ringd_emulator_alias) alias = nullptr;
  decltype(&ringd_emulator_enqueue) enqueue = nullptr;
  decltype(&ringd_emulator_calls) calls = nullptr;
  decltype(&ringd_emulator_stream_device) stream_device = nullptr;
  decltype(&ringd_emulator_fail_device) fail_device = nullptr;
};

// What the body of a child sees. A check that fails ends the child, with what and where.
class Child {
 public:
  // Opens the driver; initialises nothing.
  Child(int report, int channel);

  const CudaDriver& cuda() const { return *cuda_; }
  const EmulatorApi& emulator() const { return emulator_; }

  void Check(bool holds, const char* text, const char* file, int line) const;
  void CheckResult(CUresult expected, CUresult found, const char* text, const char* file,
                   int line) const;

  // What nearly every body begins with: cuInit, and the primary context of `device` made current.
  CUcontext UseDevice(int device = 0) const;
  CUstream NewStream() const;
  CUdeviceptr NewMemory(std::size_t bytes) const;
  // VMM memory of `device` that can be exported, zeroed, and mapped with access for `device`.
  CUdeviceptr MapMemory(std::size_t bytes, CUmemGenericAllocationHandle* handle,
                        int device = 0) const;
  CUdeviceptr MapHandle(CUmemGenericAllocationHandle handle, std::size_t bytes,
                        int device = 0) const;
  // The function `name` of a module with a small text of PTX.
  CUfunction LoadKernel(const std::string& name) const;
  // Waits by polling, for 10 s at most.
  void WaitUntil(const std::function<bool()>& holds, const char* what) const;
  bool IsDone(CUstream stream) const;
  // The eight bytes at a device pointer.
  std::uint64_t Read(CUdeviceptr pointer) const;

  // Words and descriptors to and from the test.
  void Send(std::uint64_t word, int descriptor = -1) const;
  std::uint64_t Receive(UniqueFd* descriptor = nullptr) const;

 private:
  [[noreturn]] void Fail(const std::string& what) const;

  const int report_;
  const int channel_;
  std::unique_ptr<const CudaDriver> cuda_;
  EmulatorApi emulator_;
};

// Checks that name their text and line.
#define CHILD_CHECK(condition) child.Check((condition), #condition, __FILE__, __LINE__)
#define CHILD_CUDA(expected, call) child.CheckResult((expected), (call), #call, __FILE__, __LINE__)
#define CHILD_OK(call) CHILD_CUDA(CUDA_SUCCESS, call)

// Variables without their prefix: {"DEVICES", "2"}.
using Variables = std::map<std::string, std::string>;
using Body = std::function<void(const Child& child)>;

// Thread safety: one thread. Ownership: kills and reaps the child when it goes.
class EmulatedProcess {
 public:
  // Forks. The calling process must not have opened the library itself.
  EmulatedProcess(const Variables& settings, const Body& body);
  ~EmulatedProcess();
  EmulatedProcess(const EmulatedProcess&) = delete;
  EmulatedProcess& operator=(const EmulatedProcess&) = delete;

  // Waits until it has ended, for 30 s at most. "": the body came to its end; else what went wrong.
  std::string Join();
  void Kill();

  void Send(std::uint64_t word, int descriptor = -1);
  // 10 s at most; 0 if nothing came.
  std::uint64_t Receive(UniqueFd* descriptor = nullptr);

 private:
  pid_t pid_ = -1;
  UniqueFd report_;
  UniqueFd channel_;
};

// One process from beginning to end.
std::string RunEmulated(const Variables& settings, const Body& body);

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_EMULATED_PROCESS_H_
