#include "client/core/fast_path/step_tail.h"

#include <algorithm>

namespace ringd::client {
namespace {

bool CanBeCombined(const TensorDescription& a, const TensorDescription& b) {
  return a.kind == b.kind && a.data_type == b.data_type && a.op == b.op &&
         a.prescale == b.prescale && a.postscale == b.postscale;
}

}  // namespace

bool StepTail::OnSubmit(Registration& tensor) {
  const std::uint64_t before = bytes_;
  bytes_ += tensor.bytes;
  if (recent_.size() == kMostTensors) recent_.erase(recent_.begin());
  recent_.push_back(&tensor);
  if (active_ != nullptr) {
    if (held_ == active_->tensors.size() || active_->tensors[held_] != &tensor) return false;
    ++held_;
    return true;
  }
  if (tested_ || before < kLeastBefore) return false;
  for (Tail& tail : tails_) {
    if (!Begins(tail, tensor)) continue;
    tail.failed = false;
    active_ = &tail;
    held_ = 1;
    return true;
  }
  return false;
}

bool StepTail::Begins(const Tail& tail, const Registration& tensor) const {
  return tail.alike >= kAlike && tail.tensors.front() == &tensor &&
         (!tail.failed || tensor.submissions.count() % kAgainAt == 0) &&
         std::all_of(tail.tensors.begin(), tail.tensors.end(),
                     [](const Registration* member) { return member->submissions.ShouldTry(); });
}

bool StepTail::OnWait() {
  const bool whole = active_ != nullptr && held_ == active_->tensors.size();
  if (whole) {
    active_ = nullptr;
    held_ = 0;
  }
  if (!recent_.empty()) {
    ++rounds_;
    if (const auto& tail = TailOfRound(); !tail.empty()) Learn(tail);
  }
  recent_.clear();
  bytes_ = 0;
  tested_ = false;
  return whole;
}

const std::vector<Registration*>& StepTail::TailOfRound() {
  scratch_.clear();
  const Registration& last = *recent_.back();
  if (tested_ || last.description.kind != CollectiveKind::kAllReduce || last.bytes == 0 ||
      last.bytes > limit_bytes_) {
    return scratch_;
  }
  std::uint64_t others = 0;
  scratch_.push_back(recent_.back());
  for (std::size_t i = recent_.size() - 1; i-- > 0;) {
    Registration& tensor = *recent_[i];
    others += tensor.bytes;
    if (!CanBeCombined(tensor.description, last.description) || others > kMostOtherBytes ||
        others + last.bytes > limit_bytes_ ||
        std::find(scratch_.begin(), scratch_.end(), &tensor) != scratch_.end()) {
      others -= tensor.bytes;
      break;
    }
    scratch_.push_back(&tensor);
  }
  std::reverse(scratch_.begin(), scratch_.end());
  if (bytes_ - others - last.bytes < kLeastBefore) scratch_.clear();
  return scratch_;
}

void StepTail::Learn(const std::vector<Registration*>& tensors) {
  // Known by its last tensor.
  auto found = std::find_if(tails_.begin(), tails_.end(), [&](const Tail& tail) {
    return tail.tensors.back() == tensors.back();
  });
  if (found == tails_.end()) {
    if (tails_.size() < kMostTails) {
      tails_.reserve(kMostTails);  // active_ points to one
      found = tails_.emplace(tails_.end());
    } else {
      found = std::min_element(tails_.begin(), tails_.end(), [&](const Tail& a, const Tail& b) {
        // Not the one that is being released.
        return (&a == active_ ? rounds_ : a.last_round) < (&b == active_ ? rounds_ : b.last_round);
      });
    }
    found->alike = 0;
    found->failed = false;
  }
  found->last_round = rounds_;
  if (found->tensors == tensors) {
    if (found->alike < kAlike) ++found->alike;
    return;
  }
  found->tensors = tensors;
  found->alike = 1;
}

void StepTail::OnReleased() noexcept {
  if (active_ != nullptr) {
    active_->alike = 0;
    active_->failed = true;
  }
  active_ = nullptr;
  held_ = 0;
}

void StepTail::OnGivenUp(const Registration& last) noexcept {
  for (Tail& tail : tails_) {
    if (tail.tensors.back() != &last) continue;
    // The round counts, as it does where it was released.
    tail.alike = std::min(tail.alike, 1);
    tail.failed = true;
  }
}

}  // namespace ringd::client
