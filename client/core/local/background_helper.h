// Combines the tensors of a one-node job while its trainers compute.
#ifndef RINGD_CLIENT_CORE_LOCAL_BACKGROUND_HELPER_H_
#define RINGD_CLIENT_CORE_LOCAL_BACKGROUND_HELPER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "client/core/local/local_operations.h"

namespace ringd::client {

// Runs the thread "ringd-helper", which does what waiters would do, when there are none in its
// process, nor have taken anything out since its last look: between two waits a thread copies
// results, and needs its processor and caches. It looks for work every kPause to kLongestPause
// while operations are in flight, sooner at first and when it found some. A large submission ends
// such a pause, but for kLeastPause: whoever submits and waits at once needs no helper, and where
// that has left it nothing to do it listens no more until it finds work by itself. Without
// operations it soon sleeps, until a large one is submitted, or one is put off.
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

  explicit BackgroundHelper(LocalOperations& operations) : operations_(operations) {}
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
  // Until nothing has been in flight for a while.
  void Help();
  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire) != 0; }

  LocalOperations& operations_;
  std::atomic<std::uint32_t> stopping_{0};  // a futex word
  std::uint64_t oldest_ = 0;                // of the thread: nothing older is in flight
  std::thread thread_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LOCAL_BACKGROUND_HELPER_H_
