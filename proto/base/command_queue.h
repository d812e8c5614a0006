// How other threads hand work to the thread that does it.
#ifndef RINGD_PROTO_BASE_COMMAND_QUEUE_H_
#define RINGD_PROTO_BASE_COMMAND_QUEUE_H_

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Many producers, one consumer. The consumer sleeps in epoll on event_fd().
//
// Thread safety: Post from any thread; everything else on the consumer's.
class CommandQueue {
 public:
  using Command = std::function<void()>;

  CommandQueue();

  // Readable as long as there are commands.
  int event_fd() const noexcept { return event_fd_.get(); }

  // Runs `command` on the consumer's thread, in order. Never blocks for longer than a short lock.
  void Post(Command command) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs what has been posted; true if there was something.
  bool RunAll() ABSL_LOCKS_EXCLUDED(mutex_);

  // For the last look before sleeping.
  bool empty() const noexcept { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  Mutex mutex_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  // How many are in commands_: lets the consumer look without the lock. Written under the lock.
  std::atomic<std::size_t> pending_{0};
  std::vector<Command> running_;  // the consumer's, kept for its memory
  UniqueFd event_fd_;
};

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_COMMAND_QUEUE_H_
