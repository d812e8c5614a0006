// A queue that keeps its memory: no allocation once it has been as long as it gets.
#ifndef RINGD_DAEMON_JOBS_COMMUNICATOR_FIFO_QUEUE_H_
#define RINGD_DAEMON_JOBS_COMMUNICATOR_FIFO_QUEUE_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace ringd {

// Thread safety: none.
template <typename T>
class FifoQueue {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }
  T& front() noexcept { return slots_[first_]; }
  const T& front() const noexcept { return slots_[first_]; }

  void push(T value) {
    if (count_ == slots_.size()) Grow();
    slots_[(first_ + count_) % slots_.size()] = std::move(value);
    ++count_;
  }
  void pop() noexcept {
    first_ = (first_ + 1) % slots_.size();
    --count_;
  }

 private:
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 2 : slots_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COMMUNICATOR_FIFO_QUEUE_H_
