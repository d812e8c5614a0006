// When a tensor usually becomes ready within a step.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_READY_OFFSET_H_
#define RINGD_DAEMON_SCHEDULE_NODE_READY_OFFSET_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ringd {

// A mean over the steps seen at first, which becomes one that forgets: slow first steps fade away,
// and a lasting change shows within some twenty steps.
//
// Thread safety: none.
class ReadyOffset {
 public:
  // Steps before it is worth telling, and how many it averages over in the long run.
  static constexpr std::int32_t kNeeded = 3;
  static constexpr std::int32_t kMemory = 8;

  void Add(std::chrono::nanoseconds offset) noexcept {
    count_ = std::min(count_ + 1, kMemory);
    mean_ += (offset - mean_) / count_;
  }
  std::chrono::nanoseconds mean() const noexcept { return mean_; }

  // Enough steps have been seen.
  bool is_known() const noexcept { return count_ >= kNeeded; }
  // It differs from what was last told by enough to matter for a plan.
  bool IsNews() const noexcept {
    constexpr std::chrono::nanoseconds kLeast = std::chrono::microseconds(100);
    const std::chrono::nanoseconds change = std::chrono::abs(mean_ - told_);
    return is_known() && (!was_told_ || change > std::max(kLeast, told_ / 10));
  }
  std::chrono::nanoseconds Tell() noexcept {
    was_told_ = true;
    told_ = mean_;
    return mean_;
  }
  // Tells it again next time.
  void Untell() noexcept { was_told_ = false; }

 private:
  std::chrono::nanoseconds mean_{0};
  std::chrono::nanoseconds told_{0};
  std::int32_t count_ = 0;
  bool was_told_ = false;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_READY_OFFSET_H_
