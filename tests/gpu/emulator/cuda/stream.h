// A stream of the emulated GPU: a queue of work and the thread that does it.
#ifndef RINGD_TESTS_GPU_EMULATOR_CUDA_STREAM_H_
#define RINGD_TESTS_GPU_EMULATOR_CUDA_STREAM_H_

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>

#include "proto/base/mutex.h"
#include "tests/gpu/emulator/cuda/machine.h"

namespace ringd::emulator {

// As in ringd_emulator_enqueue: 0 done, >0 not yet (microseconds), <0 a negated CUresult.
using Work = std::function<int(bool stopping)>;

// The CUstream handle is a Stream's address.
//
// Thread safety: all methods on any thread. Ownership: shared by the table of live streams and by
// the thread, which ends when the stream is closed and empty. Invariant: each accepted Work is
// called until it has ended, or once with `stopping`.
class Stream {
 public:
  // `ordinal` makes the delays of one stream differ from another's, and those of a run repeatable.
  static std::shared_ptr<Stream> Create(Machine& machine, const Settings& settings, int device,
                                        bool is_blocking, std::uint64_t ordinal);

  int device() const { return device_; }
  // Ordered with the legacy default stream.
  bool is_blocking() const { return is_blocking_; }

  // Returns the work's ticket.
  std::uint64_t Enqueue(Work work);
  // Of what was enqueued last; 0 if nothing was.
  std::uint64_t last_ticket() const;
  bool HasEnded(std::uint64_t ticket) const;
  bool IsIdle() const { return HasEnded(last_ticket()); }
  // Blocks until that work has ended. The process's sticky error ends everything.
  void WaitFor(std::uint64_t ticket) const;

  // Takes nothing more; the thread ends when it has done what is there.
  void Close();
  // Stops what is there.
  void Abandon();

 private:
  Stream(Machine& machine, const Settings& settings, int device, bool is_blocking,
         std::uint64_t ordinal);
  void Run();
  // False when nothing is left and nothing more comes.
  bool Next(Work* work);
  void Do(const Work& work);
  bool BeginOnDevice();
  bool IsStopping() const;
  void Finish();

  Machine& machine_;
  const Settings& settings_;
  const int device_;
  const bool is_blocking_;
  std::mt19937_64 random_;  // the thread's own
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t enqueued_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

// What a thread does that looks again and again.
void Nap();

// Whether this thread runs a host function, which must not call CUDA.
bool& IsInHostFunction();

}  // namespace ringd::emulator

#endif  // RINGD_TESTS_GPU_EMULATOR_CUDA_STREAM_H_
