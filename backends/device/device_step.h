// What a GPU's thread is doing, told to other threads.
#ifndef RINGD_BACKENDS_DEVICE_DEVICE_STEP_H_
#define RINGD_BACKENDS_DEVICE_DEVICE_STEP_H_

#include <atomic>
#include <cstdint>

#include "backends/device/device_launcher.h"
#include "proto/base/clock.h"

namespace ringd {

// Thread safety: Say on one thread, Get on any.
class DeviceSteps {
 public:
  void Say(const char* what, bool sets_up = false) noexcept {
    sets_up_.store(sets_up, std::memory_order_relaxed);
    since_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    // Who sees it sees no older time.
    what_.store(what, std::memory_order_release);
  }
  DeviceThreadActivity Get() const {
    const char* const what = what_.load(std::memory_order_acquire);
    const auto ticks = Clock::duration(since_.load(std::memory_order_relaxed));
    return {what, Clock::time_point(ticks), sets_up_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<const char*> what_{""};
  std::atomic<std::int64_t> since_{0};  // of Clock, its ticks
  std::atomic<bool> sets_up_{false};
};

// One step, for the length of a scope.
class DeviceStep {
 public:
  enum class Takes { kLittle, kLong };  // kLong: see DeviceThreadActivity::sets_up

  DeviceStep(DeviceSteps& steps, const char* what, Takes takes = Takes::kLittle) : steps_(steps) {
    steps_.Say(what, takes == Takes::kLong);
  }
  ~DeviceStep() { steps_.Say(""); }
  DeviceStep(const DeviceStep&) = delete;
  DeviceStep& operator=(const DeviceStep&) = delete;

 private:
  DeviceSteps& steps_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_DEVICE_DEVICE_STEP_H_
