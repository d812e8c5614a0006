// A call that waits for its answer.
#ifndef RINGD_DAEMON_ENGINE_PENDING_CALL_H_
#define RINGD_DAEMON_ENGINE_PENDING_CALL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "daemon/engine/call_thread.h"
#include "daemon/rpc/node_calls.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

// Whoever ends the call first has the word: the engine, the deadline, or the caller who goes.
//
// Thread safety: all methods from any thread. The answer is made and given on the call thread, in
//   the turn of `flow`.
// Ownership: shared by those who may end the call; the call thread outlives it.
// Invariant: the answer runs at most once; exactly once if anybody calls Finish.
template <typename Reply>
class PendingCall : public std::enable_shared_from_this<PendingCall<Reply>> {
 public:
  PendingCall(CallThread& thread, Answer<Reply> answer, CallThread::Flow flow = 0)
      : thread_(thread), flow_(flow), answer_(std::move(answer)) {}

  // If the call has not ended after `patience`, `judge` says with which status it ends, or by OK
  // that it waits as long once more.
  void SetPatience(Clock::duration patience, std::function<absl::Status()> judge)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    if (ended()) return;  // Finish has looked for a timer, or will find none
    timer_ = thread_.RunAt(Clock::now() + patience,
                           [self = this->shared_from_this(), patience, judge = std::move(judge)] {
                             if (self->ended()) return;
                             if (const absl::Status status = judge(); !status.ok()) {
                               self->Finish(status);
                             } else {
                               self->SetPatience(patience, judge);
                             }
                           });
  }

  // Ends the call; false if it has ended before. `make_reply` runs, and what it holds is freed, on
  // the call thread. It does not run if the status is not OK, or if this is not the first word.
  bool Finish(absl::Status status, std::function<Reply()> make_reply = nullptr) {
    if (ended_.exchange(true, std::memory_order_acq_rel)) {
      if (make_reply != nullptr) thread_.Post([dropped = std::move(make_reply)] {}, flow_);
      return false;
    }
    CancelTimer();
    thread_.Post(
        [self = this->shared_from_this(), status = std::move(status),
         make_reply = std::move(make_reply)] {
          self->answer_(status, status.ok() && make_reply != nullptr ? make_reply() : Reply());
          self->answer_ = nullptr;
        },
        flow_);
    return true;
  }

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  void CancelTimer() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    thread_.Cancel(timer_);
  }

  CallThread& thread_;
  const CallThread::Flow flow_;
  Answer<Reply> answer_;
  Mutex mutex_;
  CallThread::Timer timer_ ABSL_GUARDED_BY(mutex_);
  // Set once. What is posted by the one who sets it reads and empties answer_; nobody else touches
  // that.
  std::atomic<bool> ended_{false};
};

template <typename Reply>
std::shared_ptr<PendingCall<Reply>> BeginCall(CallThread& thread, Answer<Reply> answer,
                                              Clock::duration patience,
                                              std::function<absl::Status()> judge) {
  auto call = std::make_shared<PendingCall<Reply>>(thread, std::move(answer));
  call->SetPatience(patience, std::move(judge));
  return call;
}

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PENDING_CALL_H_
