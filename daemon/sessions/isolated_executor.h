// Runs what a trainer, or an engine that one has taken over, can hold up in the kernel, on threads
// on which nothing else waits.
#ifndef RINGD_DAEMON_SESSIONS_ISOLATED_EXECUTOR_H_
#define RINGD_DAEMON_SESSIONS_ISOLATED_EXECUTOR_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace ringd {

// System calls on descriptors that a trainer holds, too, can take as long as he likes: close()
// lingers (nudges.h tells how), and every call on a TCP socket waits while another process sends
// through it from memory whose page does not come, MSG_DONTWAIT or not. So they are made here,
// never on the engine. One thread runs the tasks in their order. Signals cut short what they can;
// a thread that is held up all the same is left to its task, and another one takes the next.
//
// Thread safety: any thread may call anything.
// Ownership: what was handed over. Its threads end with it, or are left alone if they do not within
// kStopPatience.
class IsolatedExecutor {
 public:
  static constexpr std::chrono::milliseconds kStopPatience{1000};
  // A task that takes longer holds up its thread. Others wait for it no longer than that, once one
  // more is handed over.
  static constexpr std::chrono::milliseconds kHeldUp{250};
  // Threads that may be held up at once, more than a node has sessions by default. Beyond that
  // tasks wait.
  static constexpr int kMostHeldUp = 256;

  IsolatedExecutor();
  ~IsolatedExecutor();  // Stop
  IsolatedExecutor(const IsolatedExecutor&) = delete;
  IsolatedExecutor& operator=(const IsolatedExecutor&) = delete;

  // Waits until all tasks have ended but those that are held up, for kStopPatience at most.
  // Idempotent; one thread at a time.
  void Stop();
  // Runs `task`, soon and elsewhere. Does not block. After Stop: does nothing but destroy it. It
  // must not throw, and its system calls may end with EINTR.
  void Run(std::function<void()> task);
  // Others wait for a task that takes longer than kHeldUp until the next one is handed over, or
  // this is called: from time to time, by whoever turns anyway. Does not block.
  void RelieveHeldUp();
  // Destroys `what`, likewise, unless somebody else holds it. After Stop: at once, and here.
  void Destroy(std::shared_ptr<const void> what);
  // Destroys `what`, likewise.
  template <typename T>
  void Discard(T what) {
    Destroy(std::make_shared<const T>(std::move(what)));
  }
  // How many tasks have not ended yet.
  std::size_t backlog() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the threads', too
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_ISOLATED_EXECUTOR_H_
