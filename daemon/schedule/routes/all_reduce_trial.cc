#include "daemon/schedule/routes/all_reduce_trial.h"

#include "proto/base/median.h"

namespace ringd {
namespace {

constexpr double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

AllReduceTrial::Step AllReduceTrial::step() const noexcept { return {kTriedBytes[size_], flat_}; }

void AllReduceTrial::OnDone(TimePoint finished, const Word& greatest) {
  if (!begun_) began_ = finished;
  begun_ = true;
  word_.elapsed_seconds = Seconds(finished - began_);
  elapsed_ = greatest.elapsed_seconds;
  // Also if another node has sent what is no number.
  const bool goes_on = elapsed_ < Seconds(kBudget) && greatest.flat_may_win > 0;
  if (!goes_on) {
    if (round_ >= kFewestRounds) EndSize();
    size_ = kTriedBytes.size();
    return;
  }
  if (done_ == 0) group_began_ = finished;
  if (++done_ > kCountedInGroup) EndGroup((finished - group_began_) / kCountedInGroup);
}

void AllReduceTrial::EndGroup(std::chrono::nanoseconds took) {
  done_ = 0;
  samples_[flat_ ? 1 : 0].push_back(took);
  flat_ = !flat_;
  if (!flat_) return;
  ++round_;
  const bool enough = round_ >= kFewestRounds && elapsed_ - size_began_ >= Seconds(kShare);
  if (enough || round_ == kMostRounds) EndSize();
}

void AllReduceTrial::EndSize() {
  AllReduceTimes times;
  times.bytes = kTriedBytes[size_];
  samples_[1].resize(static_cast<std::size_t>(round_));
  times.flat = MedianOf(samples_[1]);
  times.doubling = MedianOf(samples_[0]);
  for (Samples& samples : samples_) samples.clear();
  times_.push_back(times);
  word_.flat_may_win = times.flat < times.doubling ? 1 : 0;
  ++size_;
  round_ = 0;
  size_began_ = elapsed_;
}

}  // namespace ringd
