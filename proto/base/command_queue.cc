#include "proto/base/command_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace ringd {

CommandQueue::CommandQueue() : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void CommandQueue::Post(Command command) {
  MutexLock lock(mutex_);
  commands_.push_back(std::move(command));
  const bool is_first = pending_.load(std::memory_order_relaxed) == 0;
  // First, since who is woken looks at it without the lock.
  pending_.store(commands_.size(), std::memory_order_release);
  if (!is_first) return;
  // Under the lock: a consumer that sees the command before its ring would leave that behind, and
  // find the descriptor readable until the next command.
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof(one));
}

bool CommandQueue::RunAll() {
  if (empty()) return false;
  {
    MutexLock lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof(count));
    running_.swap(commands_);
    pending_.store(0, std::memory_order_release);
  }
  for (Command& command : running_) command();
  const bool any = !running_.empty();
  running_.clear();
  return any;
}

}  // namespace ringd
