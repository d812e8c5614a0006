// Streams and events of this process's own.
#ifndef RINGD_BACKENDS_CUDA_CUDA_STREAM_H_
#define RINGD_BACKENDS_CUDA_CUDA_STREAM_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/cuda/cuda_context.h"
#include "proto/base/clock.h"

namespace ringd {

// Waits until all that is enqueued on `stream` is done, by asking again and again: not for the data
// path. Asks once, without waiting, if `deadline` has passed.
//   kDeadlineExceeded: it is not done.  Others as CudaStatus says: also errors of the work.
absl::Status WaitIdle(const CudaContext& context, StreamHandle stream, Clock::time_point deadline);

// A stream that does not wait for the default stream, of the highest priority: what ringd does
// there, others wait for.
//
// Thread safety: handle() on any thread. Ownership: shares the context. The destructor returns at
// once; what is enqueued is still done (Driver API, cuStreamDestroy).
class CudaStream {
 public:
  // Blocks for as long as the driver does. As CudaStatus says.
  static absl::StatusOr<CudaStream> Create(std::shared_ptr<const CudaContext> context);

  CudaStream(CudaStream&& other) noexcept
      : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream() { Destroy(); }

  StreamHandle handle() const noexcept { return handle_; }

  // As the function WaitIdle.
  absl::Status WaitIdle(Clock::time_point deadline) const {
    return ringd::WaitIdle(*context_, handle_, deadline);
  }

 private:
  CudaStream(std::shared_ptr<const CudaContext> context, StreamHandle handle)
      : context_(std::move(context)), handle_(handle) {}
  void Destroy() noexcept;

  std::shared_ptr<const CudaContext> context_;
  StreamHandle handle_ = nullptr;
};

// A point on a stream. No timing: the host's clock says when it was seen.
//
// Thread safety: one thread at a time. Ownership: shares the context; may be destroyed before it is
// reached.
class CudaEvent {
 public:
  static absl::StatusOr<CudaEvent> Create(std::shared_ptr<const CudaContext> context);

  CudaEvent(CudaEvent&& other) noexcept
      : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent() { Destroy(); }

  // From now on it is the point behind what is on `stream`. As CudaStatus says.
  absl::Status Record(StreamHandle stream) const;

  // Enqueues: what follows on `stream` waits until the GPU has come to the point that was recorded
  // last. Not at all if none was.
  //   kInvalidArgument: `stream` is none of this GPU.  Others as CudaStatus says.
  absl::Status HoldUp(StreamHandle stream) const;

  // Whether the GPU has come there. Does not block. As CudaStatus says: also errors of the work
  // before it.
  absl::StatusOr<bool> IsReached() const;

 private:
  CudaEvent(std::shared_ptr<const CudaContext> context, void* handle)
      : context_(std::move(context)), handle_(handle) {}
  void Destroy() noexcept;

  std::shared_ptr<const CudaContext> context_;
  void* handle_ = nullptr;  // a CUevent
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_CUDA_CUDA_STREAM_H_
