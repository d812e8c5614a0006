#include "daemon/supervisor/node_drain.h"

#include "daemon/logging/log.h"

namespace ringd {

absl::Status NodeDrain::Set(bool draining) {
  const MutexLock lock(mutex_);
  if (state_.ending && !draining) {
    return absl::FailedPreconditionError(
        "ringd was told to end (SIGTERM), and does when its last trainer has gone: that can't be "
        "undone");
  }
  if (state_.IsDraining() == draining) return absl::OkStatus();
  SetLocked(draining);
  LogInfo(draining ? "draining: takes no new jobs until that is undone (ringctl drain --undo)"
                   : "takes new jobs again");
  return absl::OkStatus();
}

void NodeDrain::BeginToEnd() {
  const MutexLock lock(mutex_);
  state_.ending = true;
  SetLocked(true);
}

NodeDrain::State NodeDrain::state() {
  const MutexLock lock(mutex_);
  return state_;
}

void NodeDrain::SetLocked(bool draining) {
  if (state_.IsDraining() == draining) return;
  apply_(draining);
  state_.since = draining ? std::optional(Clock::now()) : std::nullopt;
}

}  // namespace ringd
