#include "tests/gpu/emulator/cuda/stream.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace ringd::emulator {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds kNap{50};
constexpr microseconds kLongestPoll{1000};
// Nobody notifies when another process fails this one: so long until it is seen.
constexpr std::chrono::milliseconds kLook{5};

}  // namespace

std::shared_ptr<Stream> Stream::Create(Machine& machine, const Settings& settings, int device,
                                       bool is_blocking, std::uint64_t ordinal) {
  std::shared_ptr<Stream> stream(new Stream(machine, settings, device, is_blocking, ordinal));
  std::thread([stream] { stream->Run(); }).detach();
  return stream;
}

Stream::Stream(Machine& machine, const Settings& settings, int device, bool is_blocking,
               std::uint64_t ordinal)
    : machine_(machine),
      settings_(settings),
      device_(device),
      is_blocking_(is_blocking),
      random_(settings.seed * 1'000'003 + ordinal) {}

std::uint64_t Stream::Enqueue(Work work) {
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.NotifyAll();
  return ++enqueued_;
}

std::uint64_t Stream::last_ticket() const {
  const MutexLock lock(mutex_);
  return enqueued_;
}

bool Stream::HasEnded(std::uint64_t ticket) const {
  const MutexLock lock(mutex_);
  return ended_ >= ticket;
}

void Stream::WaitFor(std::uint64_t ticket) const {
  const MutexLock lock(mutex_);
  while (ended_ < ticket && machine_.sticky() == CUDA_SUCCESS) {
    changed_.WaitUntil(mutex_, steady_clock::now() + kLook);
  }
}

void Stream::Close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  changed_.NotifyAll();
}

void Stream::Abandon() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  is_abandoned_ = true;
  changed_.NotifyAll();
}

bool Stream::IsStopping() const {
  const MutexLock lock(mutex_);
  return is_abandoned_ || machine_.sticky() != CUDA_SUCCESS;
}

void Stream::Run() {
  Work work;
  while (Next(&work)) {
    if (settings_.max_delay.count() > 0) {
      const auto range = static_cast<std::uint64_t>(settings_.max_delay.count()) + 1;
      std::this_thread::sleep_for(microseconds(random_() % range));
    }
    Do(work);
    work = nullptr;
    Finish();
  }
}

bool Stream::Next(Work* work) {
  const MutexLock lock(mutex_);
  while (queue_.empty()) {
    if (is_closed_) return false;
    changed_.WaitUntil(mutex_, steady_clock::now() + std::chrono::seconds(1));
  }
  *work = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void Stream::Do(const Work& work) {
  while (BeginOnDevice()) {
    const int result = work(false);
    machine_.End(device_);
    if (result == 0) return;
    if (result < 0) {
      machine_.FailWork(device_, static_cast<CUresult>(-result));
      return;
    }
    std::this_thread::sleep_for(std::min(microseconds(result), kLongestPoll));
  }
  work(true);
}

// False if the work is not to run any more.
bool Stream::BeginOnDevice() {
  if (IsStopping()) return false;
  machine_.Want(device_);
  bool has_begun = machine_.TryBegin(device_);
  while (!has_begun && !IsStopping()) {
    Nap();
    has_begun = machine_.TryBegin(device_);
  }
  machine_.Unwant(device_);
  return has_begun;
}

void Stream::Finish() {
  const MutexLock lock(mutex_);
  ++ended_;
  changed_.NotifyAll();
}

void Nap() { std::this_thread::sleep_for(kNap); }

bool& IsInHostFunction() {
  thread_local bool is_inside = false;
  return is_inside;
}

}  // namespace ringd::emulator
