#include "daemon/execution/reducer_pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "proto/base/clock.h"

namespace ringd {
namespace {

constexpr unsigned kProcessorsPerReducer = 8;
constexpr unsigned kMaxDefaultReducers = 4;
// A reducer without work looks around this often: a bound for every wait, though none is needed.
constexpr auto kIdleInterval = std::chrono::hours(1);

}  // namespace

int DefaultReducerThreads(unsigned processors) noexcept {
  return static_cast<int>(std::min(kMaxDefaultReducers, processors / kProcessorsPerReducer));
}

ReducerPool::ReducerPool(int thread_count) : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  threads_.reserve(static_cast<std::size_t>(std::max(thread_count, 0)));
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this, name = "ringd-reduce-" + std::to_string(i)] {
      ::pthread_setname_np(::pthread_self(), name.c_str());
      Run();
    });
  }
}

ReducerPool::~ReducerPool() {
  {
    MutexLock lock(mutex_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  offered_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ReducerPool::Offer(std::shared_ptr<ReducerWork> work) {
  if (threads_.empty()) return;
  {
    MutexLock lock(mutex_);
    works_.push_back(std::move(work));
  }
  offered_.NotifyAll();
}

void ReducerPool::Withdraw(const ReducerWork& work) {
  MutexLock lock(mutex_);
  std::erase_if(works_, [&work](const auto& offered) { return offered.get() == &work; });
}

void ReducerPool::WakeEngine() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof(one));
}

void ReducerPool::DrainEventFd() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof(count));
}

std::shared_ptr<ReducerWork> ReducerPool::Next() {
  MutexLock lock(mutex_);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (!works_.empty()) return works_.front();
    offered_.WaitUntil(mutex_, Clock::now() + kIdleInterval);
  }
  return nullptr;
}

void ReducerPool::Run() {
  while (const std::shared_ptr<ReducerWork> work = Next()) {
    std::optional<std::size_t> part;
    while (!stopping_.load(std::memory_order_relaxed) && (part = work->Claim()).has_value()) {
      work->Finish(*part);
    }
    Withdraw(*work);
  }
}

}  // namespace ringd
