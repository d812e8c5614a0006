#include "daemon/sessions/closer.h"

#include <pthread.h>

#include <deque>
#include <thread>
#include <utility>

#include "daemon/sessions/nudges.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {
struct Closer::State {
  mutable Mutex mutex;
  CondVar changed;
  std::deque<std::shared_ptr<const void>> waiting ABSL_GUARDED_BY(mutex);
  bool busy ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;

  std::shared_ptr<const void> Next() {
    MutexLock lock(mutex);
    busy = false;
    changed.NotifyAll();
    while (waiting.empty() && !stopping) changed.WaitUntil(mutex, Clock::now() + kLongestWait);
    if (waiting.empty()) {
      ended = true;
      changed.NotifyAll();
      return nullptr;
    }
    std::shared_ptr<const void> next = std::move(waiting.front());
    waiting.pop_front();
    busy = true;
    return next;
  }

  static constexpr std::chrono::seconds kLongestWait{60};
};

Closer::Closer() : state_(std::make_shared<State>()) {
  std::thread([state = state_] {
    ::pthread_setname_np(::pthread_self(), "ringd-closer");
    Nudges nudges;
    while (std::shared_ptr<const void> next = state->Next()) {
      nudges.Set(true);
      next.reset();
      nudges.Set(false);
    }
  }).detach();
}

Closer::~Closer() { Stop(); }

void Closer::Stop() {
  const Clock::time_point deadline = Clock::now() + kStopPatience;
  MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.NotifyAll();
  while (!state_->ended && state_->changed.WaitUntil(state_->mutex, deadline)) {
  }
}

void Closer::TakeAway(std::shared_ptr<const void> what) {
  if (what == nullptr) return;
  MutexLock lock(state_->mutex);
  if (state_->stopping) return;  // `what` goes after the lock
  state_->waiting.push_back(std::move(what));
  state_->changed.NotifyAll();
}

std::size_t Closer::backlog() const {
  MutexLock lock(state_->mutex);
  return state_->waiting.size() + (state_->busy ? 1 : 0);
}

}  // namespace ringd
