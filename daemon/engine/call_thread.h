// The thread on which calls are answered, and on which their deadlines pass.
#ifndef RINGD_DAEMON_ENGINE_CALL_THREAD_H_
#define RINGD_DAEMON_ENGINE_CALL_THREAD_H_

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "proto/base/clock.h"
#include "proto/base/mutex.h"

namespace ringd {

// One thread for all calls, however many wait. It does what the engine must not spend its time on:
// it makes replies of any length, hands them to gRPC, and frees what the engine has no use for any
// more.
//
// Tasks are posted for a flow. One task of each flow that has some runs before a second one of
// any: a task waits for those of its own flow, and for one at a time of each other one.
//
// Thread safety: all methods from any thread; tasks run one at a time.
// Ownership: owns the tasks.
class CallThread {
 public:
  using Task = std::function<void()>;
  // Whose tasks come one after the other.
  using Flow = std::uint64_t;

  // A task that waits for its time.
  struct Timer {
    Clock::time_point at;
    std::uint64_t number = 0;
    friend auto operator<=>(const Timer&, const Timer&) = default;
  };

  CallThread();
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  // Runs what was posted, drops the timers, and ends the thread. Idempotent; one thread at a time.
  // What is posted later runs at once, by whoever posts it.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `task` soon, after those that were posted for this flow before. Blocks for a short lock
  // only.
  void Post(Task task, Flow flow = 0) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `task` at `at`, or never if it is cancelled before. It must be quick: it comes before what
  // was posted.
  Timer RunAt(Clock::time_point at, Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // No effect if the task runs, or has run.
  void Cancel(const Timer& timer) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Null: the thread is to end.
  Task Next() ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::map<Flow, std::deque<Task>> posted_ ABSL_GUARDED_BY(mutex_);  // none is empty
  Flow last_flow_ ABSL_GUARDED_BY(mutex_) = 0;                       // whose turn was the last one
  bool sleeps_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Timer, Task> timers_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_ENGINE_CALL_THREAD_H_
