// A GPU as one process uses it: the driver, the device and its context. Names no type of CUDA's, so
// that who only passes streams and addresses on needs no header of NVIDIA's.
#ifndef RINGD_BACKENDS_CUDA_CUDA_CONTEXT_H_
#define RINGD_BACKENDS_CUDA_CUDA_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringd {

struct CudaDriver;  // cuda_driver.h: the functions

// Where a byte of device memory lies in this process; 0 is nowhere. The same byte lies elsewhere in
// another process.
using DeviceAddress = std::uint64_t;

// A stream: a CUstream, which is the runtime's cudaStream_t and what PyTorch calls `cuda_stream`.
// Null is the default stream of the context.
using StreamHandle = void*;

// CUDA takes the nearest priority that there is (Driver API, cuStreamCreateWithPriority). No GPU
// has more than a handful.
inline constexpr int kHighestStreamPriority = -100;

// Opens the driver (as CudaDriver::Open) and initialises it. Blocks for as long as that takes:
// seconds on a machine whose GPUs sleep. A process that forks later can't use it in its children.
//   kNotFound: no such library.  kFailedPrecondition: too old, lacks a function, has no GPU.
//   Others as CudaStatus says.
absl::StatusOr<std::shared_ptr<const CudaDriver>> OpenCudaDriver(const std::string& file);

// Sets CUDA_DEVICE_MAX_CONNECTIONS=32 if it is unset: so many streams don't wait for each other
// (CUDA C++ Programming Guide, CUDA Environment Variables; of 8, the default, some would: a stream
// that waits for a value would hold up another one, be it that which lets it go). Where the
// environment names an MPS, 8 in place of its 2: all its clients share one pool of connections
// (MPS, CUDA_DEVICE_MAX_CONNECTIONS). Not thread-safe: before the process has threads, and before
// the driver is opened.
void SetCudaEnvironment();

// One GPU of this process.
//
// It is the GPU's primary context, retained: NCCL and PyTorch are written for CUDA's run time,
// which uses that one, and streams and kernels of different contexts on one GPU exclude each other
// in time.
//
// Thread safety: all methods on any thread; what needs a current context makes it so, for the
//   length of the call.
// Ownership: everything made in it (slabs, streams, events, memory, kernels) shares it. When the
//   last of them goes, the context is released; the driver stays loaded until the process ends.
class CudaContext {
 public:
  // Each blocks for as long as the driver does; the first use of a GPU takes some 100 ms.
  //   kNotFound: there is no such GPU; the message lists those that are there.
  //   Others as CudaStatus says.
  static absl::StatusOr<std::shared_ptr<const CudaContext>> Open(
      std::shared_ptr<const CudaDriver> driver, int ordinal);
  // By "GPU-..." or "MIG-...", which is the same in every process; ordinals are not.
  static absl::StatusOr<std::shared_ptr<const CudaContext>> OpenByUuid(
      std::shared_ptr<const CudaDriver> driver, absl::string_view uuid);

  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaDriver& driver() const noexcept { return *driver_; }
  int ordinal() const noexcept { return ordinal_; }
  const std::string& uuid() const noexcept { return uuid_; }
  // Multiprocessors: how many blocks of a kernel make sense at once.
  int multiprocessors() const noexcept { return multiprocessors_; }
  // What is before the point of the compute capability, such as 9.
  int compute_major() const noexcept { return compute_major_; }
  // Whether a stream can write and wait for values in memory: what Timeline needs.
  bool has_stream_memory_operations() const noexcept { return has_stream_memory_operations_; }
  // Whether processes use the GPU at the same time, by MPS. Nothing: the driver is too old to say.
  std::optional<bool> is_under_mps() const noexcept { return is_under_mps_; }

  // From now on this thread's calls have nothing to do with graphs that other threads capture: else
  // many would fail meanwhile, and end the capture (CUDA Driver API,
  // cuThreadExchangeStreamCaptureMode). For threads of ringd's own.
  void IgnoreCaptures() const noexcept;

  // Ok unless `stream` is capturing a graph: what is enqueued for another process would be replayed
  // without it.
  //   kFailedPrecondition: it is.  Others as CudaStatus says: the stream is none.
  absl::Status CheckNotCapturing(StreamHandle stream) const;

  // A stream of the highest priority for what must not wait for any other work: see Timeline. Made
  // first of all, so that it shares its way to the GPU with none.
  StreamHandle urgent_stream() const noexcept { return urgent_stream_; }

  // For those who call the driver themselves: a CUcontext.
  void* handle() const noexcept { return handle_; }

 private:
  CudaContext() = default;

  std::shared_ptr<const CudaDriver> driver_;
  int ordinal_ = -1;
  std::string uuid_;
  int multiprocessors_ = 0;
  int compute_major_ = 0;
  bool has_stream_memory_operations_ = false;
  std::optional<bool> is_under_mps_;
  void* handle_ = nullptr;
  StreamHandle urgent_stream_ = nullptr;
};

// Makes a context current on this thread, and what was current before when it goes. In a thread
// that has it current anyway it changes nothing.
class ScopedContext {
 public:
  explicit ScopedContext(const CudaContext& context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  // As CudaStatus says: the context can't be made current.
  const absl::Status& status() const noexcept { return status_; }

 private:
  const CudaContext& context_;
  absl::Status status_;
  void* before_ = nullptr;
  bool must_restore_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_CUDA_CONTEXT_H_
