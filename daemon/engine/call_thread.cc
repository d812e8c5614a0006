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

void CallThread::Post(Task task, Flow flow) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    wake = sleeps_;
    if (!stopped_) posted_[flow].push_back(std::exchange(task, nullptr));
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

CallThread::Task CallThread::Next() {
  MutexLock lock(mutex_);
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (!timers_.empty() && timers_.begin()->first.at <= now) {
      return std::move(timers_.extract(timers_.begin()).mapped());
    }
    if (!posted_.empty()) {
      auto next = posted_.upper_bound(last_flow_);
      if (next == posted_.end()) next = posted_.begin();
      last_flow_ = next->first;
      Task task = std::move(next->second.front());
      next->second.pop_front();
      if (next->second.empty()) posted_.erase(next);
      return task;
    }
    if (stopping_) {
      stopped_ = true;
      return nullptr;
    }
    Clock::time_point until = now + kLongestSleep;
    if (!timers_.empty()) until = std::min(until, timers_.begin()->first.at);
    sleeps_ = true;
    changed_.WaitUntil(mutex_, until);
    sleeps_ = false;
  }
}

void CallThread::Run() {
  // Each task is freed, with what it held, before the next one runs.
  while (const Task task = Next()) task();
}

}  // namespace ringd
