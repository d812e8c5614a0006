// How a context ends: the rank leaves its job, and then its memory goes.
#include <chrono>
#include <thread>

#include "client/core/context.h"
#include "proto/shm/session_segment.h"

namespace ringd::client {

Context::~Context() {
  const Clock::time_point deadline = Clock::now() + kCloseDeadline;
  EndPart(Farewell::kLeave);
  // The caller promises that nobody is in a call any more; a thread that has just been woken is
  // given the time to leave.
  while (AnyWaiter() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!StreamsAreDone(deadline)) {
    static_cast<void>(device_memory_.release());
    static_cast<void>(launch_servant_.release());
  }
  const MutexLock lock(host_path_mutex_);
  if (host_path_ == nullptr) return;
  host_path_->Stop();
  if (host_path_->staging().WaitUntilQuiet(deadline)) return;
  // What streams still copy, and where.
  static_cast<void>(host_path_.release());
  static_cast<void>(heap_.release());
  static_cast<void>(heap_slab_.release());
  arena_.Keep();
}

// A stream that still copies, signals, or releases another one, must find the slab there.
bool Context::StreamsAreDone(Clock::time_point deadline) {
  if (device_staging_ != nullptr && !device_staging_->WaitUntilQuiet(deadline)) return false;
  if (device_memory_ == nullptr) return true;
  const MutexLock lock(timeline_pairs_mutex_);
  return device_memory_->WaitReleased(deadline) &&
         device_memory_->WaitSignalled(timeline_pairs_, deadline);
}

void Context::EndPart(Farewell farewell, absl::string_view failure) {
  {
    const MutexLock lock(part_mutex_);
    if (part_ != Part::kTaken) return AwaitLeft();
    part_ = Part::kEnding;
  }
  const bool reachable = state_.phase() < SessionState::Phase::kLost;
  const bool leaves = farewell == Farewell::kLeave;
  const bool tells = reachable && (leaves || !failure.empty());
  const auto tell = [this, leaves, failure] {
    if (leaves && failure.empty()) {
      auto& header = *reinterpret_cast<SessionHeader*>(segment_.data());
      header.leaves.store(1, std::memory_order_relaxed);
    }
    static_cast<void>(control_->Leave(failure, Clock::now() + kCloseDeadline));
  };
  // Who leaves in order does so before anybody hears that an operation was cancelled: until ringd
  // has answered it may read and write its memory.
  const bool tells_first = leaves && local_operations_ == nullptr;
  if (tells && tells_first) tell();
  state_.Close();
  WakeWaiters();
  node_lanes_.GiveUpMemory(state_.status());
  if (background_helper_ != nullptr) background_helper_->Stop();
  // Before the others hear of it: who leaves may do with its memory what it likes.
  if (local_operations_ != nullptr) local_operations_->GiveUp();
  node_lanes_.GiveUp();
  if (tells && !tells_first) tell();
  {
    const MutexLock lock(part_mutex_);
    part_ = Part::kEnded;
    part_changed_.NotifyAll();
  }
  lifeline_.Stop();
  fork_guard_.ForgetLifeline();
  lifeline_.Hang();
  ReleaseStreams();
}

void Context::AwaitLeft() {
  const Clock::time_point deadline = Clock::now() + kCloseDeadline;
  while (part_ != Part::kEnded && part_changed_.WaitUntil(part_mutex_, deadline)) continue;
}

}  // namespace ringd::client
