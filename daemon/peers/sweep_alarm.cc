#include "daemon/peers/sweep_alarm.h"

#include "daemon/rpc/grpc_deadline.h"

namespace ringd {

void SweepAlarm::Start() {
  MutexLock lock(mutex_);
  if (stage_ == Stage::kIdle) SetLocked();
  if (stage_ == Stage::kSweeping) is_wanted_ = true;
}

void SweepAlarm::Stop() {
  std::unique_ptr<grpc::Alarm> cancelled;
  MutexLock lock(mutex_);
  stage_ = Stage::kStopped;
  cancelled = std::move(alarm_);
}

void SweepAlarm::SetLocked() {
  stage_ = Stage::kWaiting;
  // A new one: this may be called by the function of the old one, which must not be set anew before
  // that has returned. It may be destroyed, though.
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(ToGrpcDeadline(Clock::now() + interval_), [alarm = weak_from_this()](bool fired) {
    if (!fired) return;
    if (const std::shared_ptr<SweepAlarm> alive = alarm.lock()) alive->Sweep();
  });
}

void SweepAlarm::Sweep() {
  {
    MutexLock lock(mutex_);
    if (stage_ != Stage::kWaiting) return;
    stage_ = Stage::kSweeping;
    is_wanted_ = false;
  }
  const bool is_left = sweep_();
  MutexLock lock(mutex_);
  if (stage_ != Stage::kSweeping) return;
  if (is_left || is_wanted_) {
    SetLocked();
  } else {
    stage_ = Stage::kIdle;
  }
}

}  // namespace ringd
