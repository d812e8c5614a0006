#include "daemon/sessions/isolated_executor.h"

#include <pthread.h>

#include <algorithm>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "daemon/sessions/nudges.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"
#include "proto/base/thread_priority.h"

namespace ringd {

// Invariant: of the threads one, the current one, takes tasks; the others are held up in one each.
struct IsolatedExecutor::State {
  using Task = std::function<void()>;
  static constexpr std::chrono::seconds kLongestWait{60};

  mutable Mutex mutex;
  CondVar changed;
  std::deque<Task> waiting ABSL_GUARDED_BY(mutex);
  int current ABSL_GUARDED_BY(mutex) = 0;    // that thread's number
  bool busy ABSL_GUARDED_BY(mutex) = false;  // ... with a task, since:
  Clock::time_point since ABSL_GUARDED_BY(mutex);
  int held_up ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;

  // The next task of thread `number`, which has ended its last one; null: the thread is to end.
  Task Next(int number) {
    MutexLock lock(mutex);
    if (number != current) {
      --held_up;
      return nullptr;
    }
    busy = false;
    changed.NotifyAll();
    while (waiting.empty() && !stopping) changed.WaitUntil(mutex, Clock::now() + kLongestWait);
    if (waiting.empty()) {
      ended = true;
      changed.NotifyAll();
      return nullptr;
    }
    Task next = std::move(waiting.front());
    waiting.pop_front();
    busy = true;
    since = Clock::now();
    return next;
  }

  bool NeedsThread() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return busy && !waiting.empty() && held_up < kMostHeldUp && Clock::now() - since >= kHeldUp;
  }
};

namespace {

template <typename State>
void StartThread(const std::shared_ptr<State>& state, int number) {
  std::thread([state, number] {
    ::pthread_setname_np(::pthread_self(), "ringd-isolated");
    ServeBesideEngine();
    Nudges nudges;
    while (std::function<void()> task = state->Next(number)) {
      nudges.Set(true);
      task();
      task = nullptr;
      nudges.Set(false);
    }
  }).detach();
}

template <typename State>
void Relieve(const std::shared_ptr<State>& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mutex) {
  if (!state->NeedsThread()) return;
  try {
    StartThread(state, state->current + 1);
  } catch (const std::system_error&) {
    return;  // the next one asks again
  }
  ++state->current;
  ++state->held_up;
  state->busy = false;
}

}  // namespace

IsolatedExecutor::IsolatedExecutor() : state_(std::make_shared<State>()) { StartThread(state_, 0); }

IsolatedExecutor::~IsolatedExecutor() { Stop(); }

void IsolatedExecutor::Stop() {
  const Clock::time_point deadline = Clock::now() + kStopPatience;
  MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.NotifyAll();
  // What is held up now keeps nothing from being done that was asked for before.
  while (!state_->ended && Clock::now() < deadline) {
    Relieve(state_);
    state_->changed.WaitUntil(state_->mutex, std::min(deadline, Clock::now() + kHeldUp / 2));
  }
}

void IsolatedExecutor::Run(std::function<void()> task) {
  MutexLock lock(state_->mutex);
  if (state_->stopping) return;  // `task` goes after the lock
  state_->waiting.push_back(std::move(task));
  state_->changed.NotifyAll();
  Relieve(state_);
}

void IsolatedExecutor::RelieveHeldUp() {
  MutexLock lock(state_->mutex);
  if (!state_->stopping) Relieve(state_);
}

void IsolatedExecutor::Destroy(std::shared_ptr<const void> what) {
  if (what == nullptr) return;
  Run([held = std::move(what)] {});
}

std::size_t IsolatedExecutor::backlog() const {
  MutexLock lock(state_->mutex);
  return state_->waiting.size() + (state_->busy ? 1 : 0) +
         static_cast<std::size_t>(state_->held_up);
}

}  // namespace ringd
