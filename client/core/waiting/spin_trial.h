// Whether waits that all ranks are in together are better spun or slept: both are tried.
#ifndef RINGD_CLIENT_CORE_WAITING_SPIN_TRIAL_H_
#define RINGD_CLIENT_CORE_WAITING_SPIN_TRIAL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/base/mutex.h"

namespace ringd::client {

// In the rank exchange whoever spins saves its own wake-up, and takes a processor that another rank
// of the job may need to answer: ranks that share processors are better off asleep, and no rank can
// see that by its own waits alone. So all try the same at the same time: which way, follows from
// how many operations have been completed there, and that is the same at all ranks. All see about
// the same times, since none is done before the last has come, so they mostly draw the same
// conclusion; where they don't it costs time only.
//
// Thread safety: any thread may call anything.
class SpinTrial {
 public:
  // Of each kPeriod operations the first kTrial are the trial: blocks of kBlock, spun and slept in
  // turns.
  static constexpr std::uint64_t kPeriod = 4096;
  static constexpr std::uint64_t kTrial = 96;
  static constexpr std::uint64_t kBlock = 12;
  // Spinning has to be so much faster. What it burns is somebody's.
  static constexpr double kWorthwhile = 1.05;

  // Whether an operation spins, before which `completed` have been completed.
  bool Spins(std::uint64_t completed) const;
  // That operation took so long.
  void Learn(std::uint64_t completed, std::chrono::nanoseconds took);

 private:
  static constexpr std::uint64_t kUnsettled = 2;  // of each block
  // Each way needs so many times: those of operations that were given up are missing.
  static constexpr std::size_t kEnough = kTrial / 4;

  static constexpr bool TriesSpinning(std::uint64_t completed) noexcept {
    return completed % kPeriod / kBlock % 2 == 0;
  }
  static constexpr bool InTrial(std::uint64_t completed) noexcept {
    return completed % kPeriod < kTrial;
  }
  void Decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool spins_ ABSL_GUARDED_BY(mutex_) = true;
  std::vector<std::chrono::nanoseconds> spun_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::chrono::nanoseconds> slept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_WAITING_SPIN_TRIAL_H_
