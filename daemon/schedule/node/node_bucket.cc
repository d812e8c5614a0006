#include "daemon/schedule/node/node_bucket.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

namespace ringd {
namespace {

using std::chrono::nanoseconds;

// A bucket may take this many times its usual fill time before blocked ranks make it suspect, and
// before it is given up whatever the ranks do.
constexpr int kBlockedFillFactor = 3;
constexpr int kLateFillFactor = 10;

// How often a suspect bucket is looked at again.
constexpr nanoseconds kCheckInterval = std::chrono::milliseconds(5);

// Longer than a validation between two epochs, in which only its own tensors return.
constexpr std::chrono::minutes kOutOfUseTime{10};
constexpr std::uint64_t kOutOfUseSteps = 1000;

}  // namespace

NodeBucket::NodeBucket(const ScheduledBucket& scheduled, std::vector<TensorHandle> tensors)
    : channel_(scheduled.channel),
      tensors_(std::make_shared<const std::vector<TensorHandle>>(std::move(tensors))),
      present_(scheduled.tensors.size(), false),
      usual_fill_(scheduled.expected_fill) {
  metas_.reserve(scheduled.tensors.size());
  for (const ScheduledTensor& tensor : scheduled.tensors) {
    metas_.push_back(tensor.meta);
    bytes_ += ByteCount(tensor.meta);
  }
}

std::vector<TensorHandle> NodeBucket::Missing() const {
  std::vector<TensorHandle> missing;
  for (std::size_t i = 0; i < present_.size(); ++i) {
    if (!present_[i]) missing.push_back((*tensors_)[i]);
  }
  return missing;
}

void NodeBucket::Fill(std::size_t position, TimePoint now) {
  assert(!present_[position]);
  present_[position] = true;
  if (filled_++ == 0) {
    fill_started_ = now;
    last_check_.reset();
  }
  if (full()) full_at_ = now;
  blocked_since_.reset();
}

std::uint32_t NodeBucket::Start() {
  assert(full() && !frozen_);
  const nanoseconds fill = full_at_ - fill_started_;
  usual_fill_ = std::max(fill, usual_fill_ - usual_fill_ / 16);
  std::fill(present_.begin(), present_.end(), false);
  filled_ = 0;
  return started_++;
}

std::optional<BreakReason> NodeBucket::Overdue(
    TimePoint now, const NodeSchedulerConfig& config,
    const std::function<bool(TensorHandle)>& is_blocked) {
  if (!IsWaiting()) return std::nullopt;
  const nanoseconds waited = now - fill_started_;
  if (waited >= std::max(config.late_patience, usual_fill_ * kLateFillFactor)) {
    return BreakReason::kLate;
  }
  if (now < NextCheck(config)) return std::nullopt;
  last_check_ = now;
  const std::vector<TensorHandle> missing = Missing();
  if (std::none_of(missing.begin(), missing.end(), is_blocked)) {
    blocked_since_.reset();
    return std::nullopt;
  }
  if (!blocked_since_) blocked_since_ = now;
  const bool long_enough = now - *blocked_since_ >= config.blocked_patience &&
                           waited >= usual_fill_ * kBlockedFillFactor;
  return long_enough ? std::optional(BreakReason::kBlocked) : std::nullopt;
}

bool NodeBucket::IsOutOfUse(TimePoint now, std::uint64_t steps) {
  if (!used_at_ || filled_ > 0 || used_started_ != started_) {
    used_started_ = started_;
    used_step_ = steps;
    used_at_ = now;
  }
  return now - *used_at_ >= kOutOfUseTime && steps - used_step_ >= kOutOfUseSteps;
}

std::optional<TimePoint> NodeBucket::NextCheck(const NodeSchedulerConfig& config) const {
  if (!IsWaiting()) return std::nullopt;
  const TimePoint give_up =
      fill_started_ + std::max(config.late_patience, usual_fill_ * kLateFillFactor);
  // Being blocked counts from when it is first seen, so look that long before it matters.
  const TimePoint first =
      fill_started_ +
      std::max(nanoseconds(0), usual_fill_ * kBlockedFillFactor - config.blocked_patience);
  const TimePoint check = last_check_ ? std::max(first, *last_check_ + kCheckInterval) : first;
  return std::min(check, give_up);
}

}  // namespace ringd
