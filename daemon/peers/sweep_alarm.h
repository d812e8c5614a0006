// Does something again and again, on gRPC's threads, as long as there is something to do.
#ifndef RINGD_DAEMON_PEERS_SWEEP_ALARM_H_
#define RINGD_DAEMON_PEERS_SWEEP_ALARM_H_

#include <grpcpp/alarm.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

// Internal to daemon/peers.
//
// Thread safety: any thread. Sweeps run one at a time, without a lock.
// Ownership: shared, also by a sweep that is under way, which may outlast Stop().
class SweepAlarm : public std::enable_shared_from_this<SweepAlarm> {
 public:
  // `sweep` must return soon. False: there is nothing to do before Start() is called again.
  SweepAlarm(Clock::duration interval, std::function<bool()> sweep)
      : interval_(interval), sweep_(std::move(sweep)) {}

  // There is something to do: the next sweep comes after the interval.
  void Start() ABSL_LOCKS_EXCLUDED(mutex_);
  // No sweep begins any more.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Stage { kIdle, kWaiting, kSweeping, kStopped };

  void SetLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sweep() ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock::duration interval_;
  const std::function<bool()> sweep_;
  Mutex mutex_;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kIdle;
  bool is_wanted_ ABSL_GUARDED_BY(mutex_) = false;  // since the sweep that is under way has begun
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_SWEEP_ALARM_H_
