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
    version_.fetch_add(1, std::memory_order_relaxed);
  }
  offered_.NotifyAll();
}

void ReducerPool::Tell() noexcept {
  // In one order with Sleep(): who does not count as a sleeper yet will see what has grown.
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  {
    // Who has counted himself, and has not seen it, waits before this is ours.
    MutexLock lock(mutex_);
  }
  offered_.NotifyOne();
}

void ReducerPool::Withdraw(const ReducerWork& work) {
  MutexLock lock(mutex_);
  std::erase_if(works_, [&work](const auto& offered) { return offered.get() == &work; });
  version_.fetch_add(1, std::memory_order_relaxed);
}

void ReducerPool::WakeEngine() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_fd_.get(), &one, sizeof(one));
}

void ReducerPool::DrainEventFd() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_.get(), &count, sizeof(count));
}

void ReducerPool::LookAtOffers(Known& known) {
  known.works = works_;
  known.version = version_.load(std::memory_order_relaxed);
}

bool ReducerPool::DoOne(Known& known) {
  for (std::size_t left = known.works.size(); left > 0; --left) {
    ReducerWork& work = *known.works[known.turn++ % known.works.size()];
    if (const std::optional<std::size_t> part = work.Claim()) {
      work.Finish(*part);
      return true;
    }
    if (!work.MayGrow()) {
      Withdraw(work);  // And so the version changes.
      return true;
    }
  }
  return false;
}

void ReducerPool::Sleep(Known& known) {
  std::shared_ptr<ReducerWork> work;
  std::optional<std::size_t> part;
  {
    MutexLock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    // Whatever was there before we counted ourselves is found now; of what comes later we are told.
    LookAtOffers(known);
    bool ended = false;
    for (const auto& offered : known.works) {
      if ((part = offered->Claim()).has_value()) {
        work = offered;
        break;
      }
      ended = ended || !offered->MayGrow();
    }
    if (work == nullptr && !ended && !stopping_.load(std::memory_order_relaxed)) {
      known.works.clear();
      known.version = 0;
      offered_.WaitUntil(mutex_, Clock::now() + kIdleInterval);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (work != nullptr) work->Finish(*part);
}

void ReducerPool::Run() {
  Known known;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (version_.load(std::memory_order_relaxed) != known.version) {
      MutexLock lock(mutex_);
      LookAtOffers(known);
    }
    if (!DoOne(known)) Sleep(known);
  }
}

}  // namespace ringd
