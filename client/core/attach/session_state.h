// Whether a context can still be used, and if not, why.
#ifndef RINGD_CLIENT_CORE_ATTACH_SESSION_STATE_H_
#define RINGD_CLIENT_CORE_ATTACH_SESSION_STATE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd::client {

// Thread safety: any thread may call anything. The questions without text are one atomic load.
// Invariants: phases only advance; the first text of the furthest phase is kept, and a job's root
//   cause is kept beyond the loss that may follow it.
class SessionState {
 public:
  // In the order in which they may follow each other.
  enum class Phase : std::uint8_t {
    kAlive = 0,
    // The job has failed. ringd still answers: it ends every operation in flight.
    kFailed,
    // Nothing more will come from ringd: it has gone, ended this session, or broken the protocol.
    kLost,
    // The user closes the context.
    kClosing,
  };

  // How long operations in flight may take to be ended by ringd once the job has failed.
  static constexpr std::chrono::milliseconds kFailureGrace{1000};

  Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
  bool alive() const noexcept { return phase() == Phase::kAlive; }
  // True if no completion will come any more, or none has come for kFailureGrace after the failure.
  bool GivenUp() const noexcept;

  // `root_cause` is what ringd says of the job.
  void Fail(absl::string_view root_cause);
  void Lose(absl::Status cause);
  void Close();

  // What calls on this context return now: OkStatus while alive, else kAborted with the root cause,
  // the cause of the loss, or kCancelled.
  absl::Status status() const;

 private:
  void Advance(Phase phase, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Release stores pair with the acquire loads of phase(): who sees a phase sees failed_ns_.
  std::atomic<Phase> phase_{Phase::kAlive};
  std::atomic<std::uint64_t> failed_ns_{0};
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_SESSION_STATE_H_
