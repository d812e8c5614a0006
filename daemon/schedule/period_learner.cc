#include "daemon/schedule/period_learner.h"

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

}  // namespace

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
    seen.follows_wait = true;
  }
  ++seen.streak;
  seen.last_period = period_;
  seen.offset_sum += now - period_start_;
  seen.follows_wait &= follows_wait;
  current_.push_back(name);
  return ends;
}

void PeriodLearner::BeginPeriod(TimePoint now) {
  ++period_;
  period_start_ = now;
  previous_ = std::move(current_);
  current_.clear();
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

std::vector<LearnedTensor> PeriodLearner::TakeStable() {
  std::vector<std::pair<const std::string*, const Observation*>> stable;
  bool others_follow = false;
  for (const std::string& name : previous_) {
    const auto found = observations_.find(name);
    if (found == observations_.end()) continue;
    const int required = RequiredStreak(name);
    // A tensor that was executed again already has its new occurrence in these sums: no harm.
    if (!CanLearn(found->second.meta)) continue;
    if (found->second.streak >= required) {
      stable.emplace_back(&found->first, &found->second);
    } else if (required == periods_to_learn_) {
      others_follow = true;
    }
  }
  std::vector<LearnedTensor> taken;
  if (stable.empty()) return taken;
  if (others_follow && ++waited_ <= periods_to_learn_) return taken;
  waited_ = 0;
  for (const auto& [name, seen] : stable) {
    taken.push_back({*name, seen->meta, seen->offset_sum / seen->streak, seen->follows_wait});
  }
  for (const LearnedTensor& tensor : taken) observations_.erase(tensor.name);
  std::stable_sort(taken.begin(), taken.end(), [](const LearnedTensor& a, const LearnedTensor& b) {
    return a.ready_offset < b.ready_offset;
  });
  return taken;
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
