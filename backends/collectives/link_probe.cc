#include "backends/collectives/link_probe.h"

#include <algorithm>
#include <cstring>

#include "backends/collectives/message.h"
#include "backends/collectives/operation.h"
#include "proto/base/median.h"

namespace ringd {
namespace {

static_assert(kLinkProbeBytes <= kMaxPayloadBytes);

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void LinkProbe::Begin(Operation& operation) {
  operation_ = &operation;
  node_count_ = operation.node_count();
  self_ = operation.self();
  filler_.resize(kLinkProbeBytes);
  counted_.reserve(kMostCounted);
  next_index_.assign(static_cast<std::size_t>(node_count_), 0);
  asks_.assign(static_cast<std::size_t>(node_count_), false);
  times_.assign(static_cast<std::size_t>(node_count_), {});
  done_senders_ = 0;
  round_ = 0;
  begun_ = target_done_ = false;
  // Probes, the last word, and answers: all unasked.
  constexpr std::uint32_t kMost = 2 * kMostMessages + 1;
  for (std::int32_t node = 0; node < node_count_; ++node) {
    if (node == self_) continue;
    operation.SendsTo(node, kMost);
    operation.ReceivesFrom(node, kMost, kMost);
  }
}

bool LinkProbe::Advance() noexcept {
  if (!is_over() && !begun_) {
    begun_ = true;
    target_done_ = false;
    index_ = sends_bytes() ? kQuestion : 0;
    total_time_ = counted_time_ = std::chrono::nanoseconds(0);
    counted_.clear();
    SendNext();
    AnswerQuestion();
  }
  return false;
}

void LinkProbe::SendNext() noexcept {
  sent_at_ = TimeClock::now();
  std::span<const std::byte> payload;
  if (index_ >= kFirstWithBytes) payload = filler_;
  operation_->Send(Target(), index_, payload);
}

void LinkProbe::AnswerQuestion() noexcept {
  if (!begun_ || is_over() || !sends_bytes()) return;
  const std::int32_t source = Source();
  if (!asks_[static_cast<std::size_t>(source)]) return;
  asks_[static_cast<std::size_t>(source)] = false;
  operation_->Send(source, kAnswer | kQuestion, {});
}

MessageVerdict LinkProbe::OnMessage(NodeIndex from, std::uint32_t index,
                                    std::span<const std::byte> payload) noexcept {
  if ((index & kAnswer) != 0) {
    const bool awaited = !is_over() && begun_ && !target_done_ && from.value() == Target() &&
                         index == (kAnswer | index_);
    if (!awaited || !payload.empty()) return MessageVerdict::kInvalid;
    OnAnswer();
    return MessageVerdict::kConsumed;
  }
  std::uint32_t& next = next_index_[static_cast<std::size_t>(from.value())];
  if (index == kLast) {
    if (next <= kFirstWithBytes || next > kLast || !payload.empty())
      return MessageVerdict::kInvalid;
    next = kLast + 1;
    ++done_senders_;
    GoOnIfDone();
    return MessageVerdict::kConsumed;
  }
  const std::size_t expected = index < kFirstWithBytes ? 0 : kLinkProbeBytes;
  if (index != next || index >= kMostMessages || payload.size() != expected) {
    return MessageVerdict::kInvalid;
  }
  ++next;
  if (index == kQuestion) {
    asks_[static_cast<std::size_t>(from.value())] = true;
    AnswerQuestion();
    return MessageVerdict::kConsumed;
  }
  operation_->Send(from.value(), kAnswer | index, {});
  if (next == kEmpties) GoOnIfDone();
  return MessageVerdict::kConsumed;
}

void LinkProbe::OnAnswer() noexcept {
  const std::chrono::nanoseconds took = TimeClock::now() - sent_at_;
  if (index_ != kQuestion) total_time_ += took;
  if (index_ < kEmpties || index_ >= kFirstWithBytes + kWarmUps) {
    counted_time_ += took;
    counted_.push_back(took);
  }
  ++index_;
  if (!IsMeasured()) {
    SendNext();
    return;
  }
  LinkTimes& times = times_[static_cast<std::size_t>(Target())];
  if (sends_bytes()) {
    times.message_seconds = Seconds(MedianOf(counted_));
    operation_->Send(Target(), kLast, {});
  } else {
    times.round_trip_seconds = Seconds(*std::min_element(counted_.begin(), counted_.end()));
  }
  target_done_ = true;
  GoOnIfDone();
}

bool LinkProbe::IsMeasured() const noexcept {
  if (!sends_bytes()) return index_ == kEmpties;
  if (counted_.empty()) return false;
  if (index_ == kMostMessages || total_time_ >= kLong) return true;
  return counted_.size() >= kFewestCounted && counted_time_ >= kEnough;
}

bool LinkProbe::SourceIsDone() const noexcept {
  const std::uint32_t next = next_index_[static_cast<std::size_t>(Source())];
  return sends_bytes() ? next > kLast : next >= kEmpties;
}

void LinkProbe::GoOnIfDone() noexcept {
  while (!is_over() && target_done_ && SourceIsDone()) {
    ++round_;
    begun_ = target_done_ = false;
    if (is_over()) {
      std::memcpy(operation_->at(0), times_.data(), times_.size() * sizeof(LinkTimes));
    }
    Advance();
  }
}

}  // namespace ringd
