#include "daemon/schedule/planning/period_learner.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringd {
namespace {

// A tensor that departs again and again stays negotiated for up to this many periods.
constexpr int kMaxRequiredStreak = 1024;

// Beyond this a period is not a training step but a stream of new names.
constexpr std::size_t kMaxPeriodTensors = 32768;

// How often tensors that stay away are looked for, and for how long they must have been away.
constexpr std::uint64_t kForgetInterval = 64;

// Whether a tensor begins a bucket, of two periods. In host memory one of them may have waited by
// chance. On a GPU it costs little to begin one, and much not to: see "Streams that wait" in
// daemon/schedule/README.md.
bool Joined(const TensorMeta& meta, bool before, bool now) noexcept {
  return NeedsLaunch(meta) ? before || now : before && now;
}

}  // namespace

bool PeriodLearner::OnAnnounced(const std::string& name) {
  if (current_.size() == tried_at_) return false;
  const auto found = observations_.find(name);
  if (found == observations_.end() || found->second.last_period != period_) return false;
  tried_at_ = current_.size();
  return true;
}

bool PeriodLearner::OnExecuted(const std::string& name, const TensorMeta& meta, bool follows_wait,
                               TimePoint now) {
  if (period_ == 0) BeginPeriod(now);
  auto found = observations_.find(name);
  const bool repeats = found != observations_.end() && found->second.last_period == period_;
  const bool ends = repeats || current_.size() >= kMaxPeriodTensors;
  if (ends) {
    BeginPeriod(now);
    found = observations_.find(name);
  }
  if (found == observations_.end()) found = observations_.emplace(name, Observation()).first;
  Observation& seen = found->second;
  const bool continues = seen.streak > 0 && seen.last_period + 1 == period_ && seen.meta == meta;
  if (!continues) {
    seen = Observation();
    seen.meta = meta;
    seen.follows_wait = !NeedsLaunch(meta);
  }
  ++seen.streak;
  seen.last_period = period_;
  seen.offset_sum += now - period_start_;
  seen.follows_wait = Joined(meta, seen.follows_wait, follows_wait);
  current_.push_back(name);
  return ends;
}

void PeriodLearner::BeginPeriod(TimePoint now) {
  ++period_;
  period_start_ = now;
  previous_ = std::move(current_);
  current_.clear();
  tried_at_ = 0;
  waited_ = waits_ ? waited_ + 1 : 0;
  waits_ = false;
  if (period_ % kForgetInterval == 0 || previous_.size() >= kMaxPeriodTensors) ForgetAbsent();
}

void PeriodLearner::ForgetAbsent() {
  for (auto it = observations_.begin(); it != observations_.end();) {
    it = it->second.last_period + 1 < period_ ? observations_.erase(it) : std::next(it);
  }
}

int PeriodLearner::RequiredStreak(const std::string& name) const {
  const auto found = required_streak_.find(name);
  return found == required_streak_.end() ? periods_to_learn_ : found->second;
}

// Whether a tensor of this period is on its way to being stable, or one of the last period has not
// come yet.
bool PeriodLearner::MustWaitForOthers() const {
  if (waited_ >= periods_to_learn_) return false;
  const auto follows = [this](const std::string& name) {
    const auto found = observations_.find(name);
    return found != observations_.end() && CanLearn(found->second.meta) &&
           RequiredStreak(name) == periods_to_learn_ &&
           (found->second.streak < periods_to_learn_ || found->second.last_period < period_);
  };
  return std::any_of(current_.begin(), current_.end(), follows) ||
         std::any_of(previous_.begin(), previous_.end(), follows);
}

std::vector<LearnedTensor> PeriodLearner::TakeStable() {
  std::vector<std::string> stable;
  std::vector<std::string> others;
  for (const std::string& name : current_) {
    const auto found = observations_.find(name);
    if (found == observations_.end()) continue;  // a node has named it in a Break
    const Observation& seen = found->second;
    const bool is_stable = CanLearn(seen.meta) && seen.streak >= RequiredStreak(name);
    (is_stable ? stable : others).push_back(name);
  }
  std::vector<LearnedTensor> taken;
  if (stable.empty()) return taken;
  waits_ = MustWaitForOthers();
  if (waits_) return taken;
  ++taken_;
  current_ = std::move(others);
  tried_at_ = current_.size();
  for (const std::string& name : stable) {
    const auto found = observations_.find(name);
    const Observation& seen = found->second;
    taken.push_back({name, seen.meta, seen.offset_sum / seen.streak, seen.follows_wait, taken_, 0});
    observations_.erase(found);
  }
  std::stable_sort(taken.begin(), taken.end(), [](const LearnedTensor& a, const LearnedTensor& b) {
    return a.ready_offset < b.ready_offset;
  });
  return taken;
}

bool PeriodLearner::IsConfirmed(const KeptBucket& bucket) const {
  return !bucket.empty() && std::all_of(bucket.begin(), bucket.end(), [&](const KeptTensor& kept) {
    const auto found = observations_.find(kept.name);
    return found != observations_.end() && found->second.last_period == period_ &&
           found->second.meta == kept.meta && CanLearn(kept.meta) &&
           RequiredStreak(kept.name) == periods_to_learn_;
  });
}

std::vector<LearnedTensor> PeriodLearner::TakeKept(const KeptBucket& bucket) {
  std::vector<LearnedTensor> taken;
  for (const KeptTensor& kept : bucket) {
    const auto found = observations_.find(kept.name);
    if (found == observations_.end()) continue;  // named twice
    const bool follows_wait = Joined(kept.meta, kept.follows_wait, found->second.follows_wait);
    taken.push_back({kept.name, kept.meta, kept.ready_offset, follows_wait, taken_ + 1, 0});
    observations_.erase(found);
  }
  return taken;
}

void PeriodLearner::EndTake() {
  ++taken_;
  std::erase_if(current_,
                [this](const std::string& name) { return observations_.count(name) == 0; });
  tried_at_ = current_.size();
}

void PeriodLearner::Penalise(const std::string& name) {
  int& required = required_streak_.try_emplace(name, periods_to_learn_).first->second;
  required = std::min(required * 2, kMaxRequiredStreak);
}

void PeriodLearner::Forget(const std::string& name) {
  observations_.erase(name);
  required_streak_.erase(name);
}

}  // namespace ringd
