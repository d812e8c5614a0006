// A call that waits for its answer.
#ifndef RINGD_DAEMON_ENGINE_PENDING_CALL_H_
#define RINGD_DAEMON_ENGINE_PENDING_CALL_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "daemon/engine/call_thread.h"
#include "daemon/engine/engine_control.h"
#include "proto/base/clock.h"

namespace ringd {

// Whoever ends the call first has the word: the engine, the deadline, or the caller who goes.
//
// Thread safety: all methods from any thread. The answer is made and given on the call thread.
// Ownership: shared by those who may end the call; the call thread outlives it.
// Invariant: the answer runs at most once; exactly once if anybody calls Finish or a deadline is set.
template <typename Reply>
class PendingCall : public std::enable_shared_from_this<PendingCall<Reply>> {
 public:
  PendingCall(CallThread& thread, Answer<Reply> answer)
      : thread_(thread), answer_(std::move(answer)) {}

  // Before anybody else knows the call: it ends with `status` if it has not ended at `at`, seconds from now.
  void SetDeadline(Clock::time_point at, absl::Status status) {
    timer_ = thread_.RunAt(at, [self = this->shared_from_this(), status = std::move(status)] {
      self->Finish(status);
    });
  }

  // Ends the call; false if it has ended before. `make_reply` runs, and what it holds is freed, on the call thread. It
  // does not run if the status is not OK, or if this is not the first word.
  bool Finish(absl::Status status, std::function<Reply()> make_reply = nullptr) {
    if (ended_.exchange(true, std::memory_order_acq_rel)) {
      if (make_reply != nullptr) thread_.Post([dropped = std::move(make_reply)] {});
      return false;
    }
    thread_.Cancel(timer_);
    thread_.Post([self = this->shared_from_this(), status = std::move(status),
                  make_reply = std::move(make_reply)] {
      self->answer_(status, status.ok() && make_reply != nullptr ? make_reply() : Reply());
      self->answer_ = nullptr;
    });
    return true;
  }

  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  CallThread& thread_;
  Answer<Reply> answer_;
  CallThread::Timer timer_;
  // Set once. What is posted by the one who sets it reads and empties answer_; nobody else touches that.
  std::atomic<bool> ended_{false};
};

template <typename Reply>
std::shared_ptr<PendingCall<Reply>> BeginCall(CallThread& thread, Answer<Reply> answer,
                                              Clock::time_point deadline, absl::Status late) {
  auto call = std::make_shared<PendingCall<Reply>>(thread, std::move(answer));
  call->SetDeadline(deadline, std::move(late));
  return call;
}

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_PENDING_CALL_H_
