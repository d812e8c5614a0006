#include "client/core/attach/session_state.h"

#include <utility>

namespace ringd::client {

bool SessionState::GivenUp() const noexcept {
  const Phase now = phase();
  if (now == Phase::kAlive) return false;
  if (now >= Phase::kLost) return true;
  const std::uint64_t failed = failed_ns_.load(std::memory_order_relaxed);
  return MonotonicNanos() - failed >
         static_cast<std::uint64_t>(std::chrono::nanoseconds(kFailureGrace).count());
}

void SessionState::Fail(absl::string_view root_cause) {
  MutexLock lock(mutex_);
  if (phase() >= Phase::kFailed) return;
  failed_ns_.store(MonotonicNanos(), std::memory_order_relaxed);
  Advance(Phase::kFailed, absl::AbortedError(root_cause));
}

void SessionState::Lose(absl::Status cause) {
  MutexLock lock(mutex_);
  if (phase() >= Phase::kLost) return;
  // After a failure the root cause says more than that ringd then went away.
  Advance(Phase::kLost, phase() == Phase::kFailed ? status_ : std::move(cause));
}

void SessionState::Close() {
  MutexLock lock(mutex_);
  if (phase() >= Phase::kClosing) return;
  // Who waits still hears why it was lost.
  Advance(Phase::kClosing,
          phase() == Phase::kLost ? status_ : absl::CancelledError("the context has been closed"));
}

absl::Status SessionState::status() const {
  if (alive()) return absl::OkStatus();
  MutexLock lock(mutex_);
  return status_;
}

void SessionState::Advance(Phase phase, absl::Status status) {
  status_ = std::move(status);
  phase_.store(phase, std::memory_order_release);
}

}  // namespace ringd::client
