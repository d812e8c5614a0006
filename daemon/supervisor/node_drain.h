// Whether this node takes new jobs.
#ifndef RINGD_DAEMON_SUPERVISOR_NODE_DRAIN_H_
#define RINGD_DAEMON_SUPERVISOR_NODE_DRAIN_H_

#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

// A node drains because somebody has asked for it (`ringctl drain`), which can be undone, or
// because ringd ends (SIGTERM), which can't. Both do the same.
//
// Thread safety: any thread.
class NodeDrain {
 public:
  // Draws new trainers and jobs away, or lets them come again. Called only when that changes, one
  // call at a time, with a lock: it must not wait, nor call anything here.
  using Apply = std::function<void(bool draining)>;

  struct State {
    std::optional<Clock::time_point> since;  // none: it takes new jobs
    bool ending = false;                     // ringd ends when its last trainer has gone

    bool IsDraining() const noexcept { return since.has_value(); }
    // StatusReply's.
    const char* Name() const noexcept { return IsDraining() ? "draining" : "serving"; }
  };

  explicit NodeDrain(Apply apply) : apply_(std::move(apply)) {}

  // Somebody asks for it. When it returns, all that comes finds the node so.
  //   kFailedPrecondition: it can't be undone, since ringd ends.
  absl::Status Set(bool draining) ABSL_LOCKS_EXCLUDED(mutex_);
  // ringd ends.
  void BeginToEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  State state() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void SetLocked(bool draining) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Apply apply_;
  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_NODE_DRAIN_H_
