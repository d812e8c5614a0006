#include "backends/tcp/line_turn.h"

#include <algorithm>
#include <atomic>

#include "proto/types/job_weight.h"

namespace ringd {

std::uint64_t LineTurn::WeightOf(std::size_t slot) const noexcept {
  return std::clamp(roster_.weights[slot].load(std::memory_order_relaxed), kMinJobWeight,
                    kMaxJobWeight);
}

void LineTurn::Publish() noexcept { tags_.of[slot_].store(tag_, std::memory_order_relaxed); }

void LineTurn::Begin() noexcept {
  if (users_++ > 0) return;
  bool others = false;
  std::uint64_t least = 0;
  SlotSet::ForEachOther(wanting_, roster_.engines.set, slot_, [&](std::size_t slot) {
    const std::uint64_t tag = tags_.of[slot].load(std::memory_order_relaxed);
    if (in_the_way_[slot] && seen_tags_[slot] == tag) return;  // perhaps stuck: no measure
    if (!others || Lead(tag, least) < 0) least = tag;
    others = true;
  });
  if (others) {
    const auto most = static_cast<std::int64_t>(2 * own_frame());
    tag_ = least + static_cast<std::uint64_t>(std::clamp(Lead(tag_, least), std::int64_t{0}, most));
  }
  Publish();
  wanting_.Add(slot_);
}

void LineTurn::End() noexcept {
  if (--users_ == 0) wanting_.Remove(slot_);
}

bool LineTurn::IsStuck(std::size_t slot, std::uint64_t tag, Clock::time_point now) noexcept {
  if (in_the_way_[slot] && seen_tags_[slot] == tag) return now - seen_since_[slot] >= kPatience;
  in_the_way_.set(slot);
  seen_tags_[slot] = tag;
  seen_since_[slot] = now;
  ++moves_;
  return false;
}

bool LineTurn::IsOwn(Clock::time_point now) noexcept {
  const auto frame = static_cast<std::int64_t>(own_frame());
  bool others = false;
  bool waits = false;
  std::uint64_t least = 0;
  std::uint64_t weights = WeightOf(slot_);
  SlotSet::ForEachOther(wanting_, roster_.engines.set, slot_, [&](std::size_t slot) {
    const std::uint64_t tag = tags_.of[slot].load(std::memory_order_relaxed);
    const bool in_the_way = Lead(tag_, tag) > frame;
    if (!in_the_way) in_the_way_.reset(slot);
    if (in_the_way && IsStuck(slot, tag, now)) return;
    weights += WeightOf(slot);
    waits = waits || in_the_way;
    if (!others || Lead(tag, least) < 0) least = tag;
    others = true;
  });
  part_ = static_cast<double>(WeightOf(slot_)) / static_cast<double>(weights);
  if (!others) return true;
  // Further apart than two frames, one of them at the least weight, tags are only if they were
  // not compared for a while.
  const std::int64_t lead =
      std::clamp(Lead(tag_, least), -static_cast<std::int64_t>(2 * kFrameTag), 2 * frame);
  tag_ = least + static_cast<std::uint64_t>(lead);
  Publish();
  // Others may write this engine's words.
  if (!wanting_.Has(slot_)) wanting_.Add(slot_);
  return !waits;
}

void LineTurn::Charge(std::size_t bytes) noexcept {
  if (!OthersWant()) return;
  tag_ += (std::uint64_t{bytes} << kLineTagBits) / WeightOf(slot_);
  Publish();
}

}  // namespace ringd
