#include "proto/base/command_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace ringd {

CommandQueue::CommandQueue() : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void CommandQueue::Post(Command command) {
  {
    MutexLock lock(mutex_);
    commands_.push_back(std::move(command));
    pending_.store(commands_.size(), std::memory_order_release);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof(one));
}

bool CommandQueue::RunAll() {
  if (empty()) return false;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof(count));
  {
    MutexLock lock(mutex_);
    running_.swap(commands_);
    pending_.store(0, std::memory_order_release);
  }
  for (Command& command : running_) command();
  const bool any = !running_.empty();
  running_.clear();
  return any;
}

}  // namespace ringd
