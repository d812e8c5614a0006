// The reducer threads of a ringd.
#ifndef RINGD_DAEMON_EXECUTION_REDUCER_POOL_H_
#define RINGD_DAEMON_EXECUTION_REDUCER_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "daemon/execution/reducers.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// How many threads suit a node on which ringd may use so many processors: one for eight, and at
// most four. Small machines get none: there the trainers' own threads have a use for every
// processor, and a reducer would run in place of one of them or of the engine.
int DefaultReducerThreads(unsigned processors) noexcept;

// Threads that take parts of what is offered, one of each work in turn, and sleep when there is
// none. So no operation's results wait for more than a part of each other's.
//
// Thread safety: Offer, Tell, Withdraw, DrainEventFd and destruction on the progress thread; the
// rest
//   on any.
// Ownership: holds what is offered until nothing of it is left to claim nor may be later, or it is
//   withdrawn; a thread amid a part a little longer. Destruction finishes the parts that are being
//   done and begins no other; what the work uses must live as long.
class ReducerPool final : public Reducers {
 public:
  // `thread_count` may be 0: then nobody takes anything.
  explicit ReducerPool(int thread_count);
  ~ReducerPool() override;
  ReducerPool(const ReducerPool&) = delete;
  ReducerPool& operator=(const ReducerPool&) = delete;

  int thread_count() const noexcept { return static_cast<int>(threads_.size()); }
  // Readable after WakeEngine, until it is drained.
  int event_fd() const noexcept { return event_fd_.get(); }
  void DrainEventFd() noexcept;

  void Offer(std::shared_ptr<ReducerWork> work) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Tell() noexcept override ABSL_LOCKS_EXCLUDED(mutex_);
  void Withdraw(const ReducerWork& work) override ABSL_LOCKS_EXCLUDED(mutex_);
  void WakeEngine() noexcept override;

 private:
  // What one thread knows of the offers; it looks again when they have changed.
  struct Known {
    std::vector<std::shared_ptr<ReducerWork>> works;
    std::uint64_t version = 0;
    std::size_t turn = 0;  // of works
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  void LookAtOffers(Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does a part of whose turn it is; false if there was none.
  bool DoOne(Known& known) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sleeps until there may be parts, or the pool ends.
  void Sleep(Known& known) ABSL_LOCKS_EXCLUDED(mutex_);

  UniqueFd event_fd_;
  Mutex mutex_;
  CondVar offered_;
  std::vector<std::shared_ptr<ReducerWork>> works_ ABSL_GUARDED_BY(mutex_);
  // Grows with each change of works_, under the mutex; read without it between two parts, where
  // late is early enough.
  std::atomic<std::uint64_t> version_{1};
  // Threads that sleep, or have begun to and look at the works once more. Changed under the mutex.
  std::atomic<int> sleepers_{0};
  // Written under the mutex; read without it between two parts.
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_EXECUTION_REDUCER_POOL_H_
