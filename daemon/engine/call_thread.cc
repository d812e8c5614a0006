#include "daemon/engine/call_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/base/thread_priority.h"

namespace ringd {
namespace {

// Without timers nothing is due; a wait has a deadline all the same.
constexpr auto kLongestSleep = std::chrono::minutes(1);

}  // namespace

CallThread::CallThread()
    : thread_([this] {
        ::pthread_setname_np(::pthread_self(), "ringd-calls");
        ServeBesideEngine();
        Run();
      }) {}

CallThread::~CallThread() { Stop(); }

void CallThread::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyOne();
  thread_.join();
  std::map<Timer, Task> dropped;  // their ends may post
  MutexLock lock(mutex_);
  dropped.swap(timers_);
}

void CallThread::Post(Task task) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    wake = posted_.empty();
    if (!stopped_) posted_.push_back(std::exchange(task, nullptr));
  }
  if (task != nullptr) {
    task();
  } else if (wake) {
    changed_.NotifyOne();
  }
}

CallThread::Timer CallThread::RunAt(Clock::time_point at, Task task) {
  Timer timer;
  bool first = false;
  {
    MutexLock lock(mutex_);
    timer = {at, ++last_number_};
    const auto added = timers_.emplace(timer, std::move(task)).first;
    first = added == timers_.begin();  // a statement of its own: begin() is another one before
  }
  if (first) changed_.NotifyOne();
  return timer;
}

void CallThread::Cancel(const Timer& timer) {
  Task dropped;  // ends outside of the lock
  MutexLock lock(mutex_);
  const auto found = timers_.find(timer);
  if (found == timers_.end()) return;
  dropped = std::move(found->second);
  timers_.erase(found);
}

void CallThread::Run() {
  std::vector<Task> tasks;
  for (;;) {
    {
      MutexLock lock(mutex_);
      for (;;) {
        const Clock::time_point now = Clock::now();
        tasks.swap(posted_);
        while (!timers_.empty() && timers_.begin()->first.at <= now) {
          tasks.push_back(std::move(timers_.begin()->second));
          timers_.erase(timers_.begin());
        }
        if (!tasks.empty()) break;
        if (stopping_) {
          stopped_ = true;
          return;
        }
        Clock::time_point until = now + kLongestSleep;
        if (!timers_.empty()) until = std::min(until, timers_.begin()->first.at);
        changed_.WaitUntil(mutex_, until);
      }
    }
    for (Task& task : tasks) {
      task();
      task = nullptr;  // frees what it held before the next one runs
    }
    tasks.clear();
  }
}

}  // namespace ringd
