#include "tests/simulation/rank_thread.h"

#include <algorithm>
#include <numeric>

namespace ringd::simulation {
namespace {

// The tensor's content at a rank: a function of who and when, so that any mix-up shows in the sum.
std::int64_t ValueOf(const Submission& submission) {
  std::uint64_t seed = static_cast<std::uint64_t>(submission.rank) * 1000003u +
                       static_cast<std::uint64_t>(submission.occurrence);
  for (char c : submission.name) seed = seed * 131 + static_cast<unsigned char>(c);
  return static_cast<std::int64_t>(Random(seed).Next() >> 24);
}

}  // namespace

RankThread::Step RankThread::Next() {
  while (!done()) {
    if (waiting_for_ != nullptr) {
      if (!waiting_for_->ended) return {};
      waiting_for_ = nullptr;
      waited_ = true;
    }
    if (!entered_) EnterPhase();
    const Phase& phase = program_[phase_];
    if (phase.external_barrier && !passed_barrier_) {
      passed_barrier_ = true;
      return {Need::kBarrier, {}, nullptr};
    }
    if (!order_.empty()) {
      if (!computed_ && phase.compute.count() > 0) {
        computed_ = true;
        return {Need::kCompute, random_.Duration(std::chrono::nanoseconds(0), phase.compute),
                nullptr};
      }
      if (!considered_wait_) {
        considered_wait_ = true;
        if (!open_.empty() && random_.Chance(phase.wait_percent)) {
          waiting_for_ = open_[random_.Next() % open_.size()];
          continue;
        }
      }
      computed_ = false;
      considered_wait_ = false;
      return {Need::kSubmission, {}, &MakeSubmission()};
    }
    if (!to_wait_.empty()) {
      waiting_for_ = to_wait_.back();
      to_wait_.pop_back();
      continue;
    }
    // What was submitted in this phase may be waited for from the next one on.
    ++phase_;
    entered_ = false;
  }
  return {};
}

void RankThread::EnterPhase() {
  const Phase& phase = program_[phase_];
  entered_ = true;
  passed_barrier_ = false;
  order_.resize(phase.tensors.size());
  std::iota(order_.rbegin(), order_.rend(), std::size_t{0});
  if (phase.own_order) random_.Shuffle(order_);
  open_.erase(std::remove_if(open_.begin(), open_.end(), [](Submission* s) { return s->ended; }),
              open_.end());
  for (Submission& submission : submissions_) {
    if (!submission.ended && std::find(open_.begin(), open_.end(), &submission) == open_.end()) {
      open_.push_back(&submission);
    }
  }
  while (!submissions_.empty() && submissions_.front().ended) submissions_.pop_front();
}

Submission& RankThread::MakeSubmission() {
  const Phase& phase = program_[phase_];
  const PhaseTensor& tensor = phase.tensors[order_.back()];
  order_.pop_back();
  Submission& submission = submissions_.emplace_back();
  submission.name = tensor.name;
  submission.occurrence = occurrences_[tensor.name]++;
  submission.rank = rank_;
  submission.meta = tensor.deviating_rank == rank_ ? tensor.deviating_meta : tensor.meta;
  submission.value = ByteCount(submission.meta) > 0 ? ValueOf(submission) : 0;
  if (phase.wait_for_all || random_.Chance(20)) to_wait_.push_back(&submission);
  return submission;
}

bool RankThread::TakeWaited() {
  const bool waited = waited_;
  waited_ = false;
  return waited;
}

}  // namespace ringd::simulation
