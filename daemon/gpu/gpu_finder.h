// What ringd knows of this node's GPUs, and who asks.
#ifndef RINGD_DAEMON_GPU_GPU_FINDER_H_
#define RINGD_DAEMON_GPU_GPU_FINDER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/gpu/gpu_probe.h"
#include "daemon/gpu/probe_process.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"
#include "proto/rpc/admin.pb.h"

namespace ringd {

struct GpuFinderOptions {
  std::string program = "/proc/self/exe";  // this ringd, also when its file has been replaced
  std::string cuda_library;                // empty: nobody looks for GPUs
  std::string nccl_library;                // empty: nobody looks for NCCL
  Clock::duration deadline = std::chrono::seconds(30);  // of one look
  Clock::duration kept = std::chrono::seconds(10);      // how long an answer is given again
};

// Looks for GPUs when somebody asks: two probes at once, one for the CUDA driver and one for NCCL.
// There is never more than one look, however many ask, and none while nobody does.
//
// Thread safety: all methods from any thread.
// Ownership: of its thread, which the first question starts, and of the probes.
class GpuFinder {
 public:
  // Gets the answer, once; on the finder's thread, or on the caller's before the call returns. Must
  // not wait.
  using Tell = std::function<void(const v1::GpusReply&)>;

  explicit GpuFinder(GpuFinderOptions options);
  ~GpuFinder();  // Stop
  GpuFinder(const GpuFinder&) = delete;
  GpuFinder& operator=(const GpuFinder&) = delete;

  // Tells what a look finds that ended less than `kept` ago, or a new one: after the deadline and
  // ProbeProcess::kKillPatience at most.
  void Find(Tell tell) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells what the last look has found, whenever that was. If there was none, begins one and waits
  // for it, for `patience` at most; state is "looking" if that is not enough.
  void Recall(Clock::duration patience, Tell tell) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends a look under way. Everybody who waits is told what is known, and so is who asks later.
  // Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiter {
    Clock::time_point until;
    Tell tell;
  };
  // One probe of a look; null: the library is not set, or the process did not start.
  struct Part {
    ProbedLibrary library;
    std::string file;
    std::unique_ptr<ProbeProcess> process;
    absl::Status start;
    bool is_over = false;
  };

  // False: the process has no thread left to give.
  bool EnsureThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Precondition: EnsureThread().
  void Wait(Waiter waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  void StartPart(Part& part, Clock::time_point now);
  // False: told to stop.
  bool Sleep(const std::vector<Part>& parts, Clock::time_point until);
  void Keep(std::vector<Part>& parts, Clock::time_point now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells those whose patience is at its end; all of them if `everybody`.
  void TellWaiters(bool everybody) ABSL_LOCKS_EXCLUDED(mutex_);
  Clock::time_point NextWaiter() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasWaiters() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsStopping() ABSL_LOCKS_EXCLUDED(mutex_);
  v1::GpusReply Known() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GpuFinderOptions options_;
  const UniqueFd wake_;
  // The finder's thread's alone: probes that the kernel does not let go of.
  std::vector<Part> stuck_;

  Mutex mutex_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  v1::GpusReply found_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point found_at_ ABSL_GUARDED_BY(mutex_);
  bool has_found_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_GPU_GPU_FINDER_H_
