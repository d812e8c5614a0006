// Combines the tensors of a one-node job while its trainers compute.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_BACKGROUND_HELPER_H_
#define RINGD_CLIENT_CORE_LANES_NODE_BACKGROUND_HELPER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "client/core/lanes/node/local_operations.h"
#include "client/core/lanes/node/processor_watch.h"
#include "proto/base/clock.h"

namespace ringd::client {

// Runs the thread "ringd-helper", which does what waiters would do, when there are none in its
// process, nor have taken anything out since its last look: between two waits a thread copies
// results, and needs its processor and caches. It looks for work every kPause to kLongestPause
// while operations are in flight, sooner at first and when it found some. A large submission ends
// such a pause, but for kLeastPause: whoever submits and waits at once needs no helper, and where
// that has left it nothing to do it listens no more until it finds work by itself. Without
// operations it soon sleeps, until a large one is submitted, or one is put off.
//
// Where the trainers' computing leaves no processor idle (ProcessorWatch) it does nothing but
// measure whether that is still so, and submissions are not put off.
//
// Thread safety: Start, then Stop, from one thread; Stop is idempotent.
// Ownership: borrows the operations, which must outlive it.
class BackgroundHelper {
 public:
  // From a submission to the look; a waiter has come long before.
  static constexpr std::chrono::microseconds kLeastPause{250};
  static constexpr std::chrono::milliseconds kPause{1};
  static constexpr std::chrono::milliseconds kLongestPause{4};
  // In a row, because of who takes operations out one after the other.
  static constexpr int kLooksToKeepOut = 2;
  // Without any operation in flight, before it sleeps.
  static constexpr int kIdlePauses = 16;

  // Between looks where it stands by: while it measures, and else.
  static constexpr std::chrono::milliseconds kMeasuringPause{2};
  static constexpr std::chrono::milliseconds kStandByPause{20};
  // Who has not waited by then may be doing something else than a step.
  static constexpr std::chrono::milliseconds kLongestPiece{500};

  BackgroundHelper(LocalOperations& operations, ProcessorWatch processors)
      : operations_(operations), processors_(std::move(processors)) {}
  ~BackgroundHelper();
  BackgroundHelper(const BackgroundHelper&) = delete;
  BackgroundHelper& operator=(const BackgroundHelper&) = delete;

  // kResourceExhausted: there is no thread to be had.
  absl::Status Start();
  // Blocks until the thread has ended: for one chunk of a tensor at most, or for the copy of one
  // that was put off.
  void Stop();

 private:
  void Run();
  // Until nothing has been in flight for a while, or there is no room for it any more.
  void Help();
  // Until there is room for it.
  void StandBy();
  // Measures from when operations are in flight until somebody waits for them.
  void WatchProcessors();
  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire) != 0; }

  LocalOperations& operations_;
  ProcessorWatch processors_;               // of the thread
  std::atomic<std::uint32_t> stopping_{0};  // a futex word
  std::uint64_t oldest_ = 0;                // of the thread: nothing older is in flight
  std::uint64_t measured_from_ = 0;         // likewise: what had been consumed
  Clock::time_point measured_since_;        // likewise
  std::thread thread_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_BACKGROUND_HELPER_H_
