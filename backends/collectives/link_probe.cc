#include "backends/collectives/link_probe.h"

#include <algorithm>
#include <cstring>

#include "backends/collectives/message.h"
#include "backends/collectives/operation.h"

namespace ringd {
namespace {

static_assert(kLinkProbeBytes <= kMaxPayloadBytes);

constexpr std::chrono::nanoseconds kNone = std::chrono::nanoseconds::max();

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void LinkProbe::Begin(Operation& operation) {
  operation_ = &operation;
  node_count_ = operation.node_count();
  self_ = operation.self();
  filler_.resize(kLinkProbeBytes);
  next_index_.assign(static_cast<std::size_t>(node_count_), 0);
  done_senders_ = 0;
  round_ = 1;
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
  if (round_ < node_count_ && !begun_) {
    begun_ = true;
    target_done_ = false;
    index_ = 0;
    counted_ = std::chrono::nanoseconds(0);
    round_trip_ = message_ = kNone;
    SendNext();
  }
  return false;
}

void LinkProbe::SendNext() noexcept {
  sent_at_ = TimeClock::now();
  std::span<const std::byte> payload;
  if (index_ >= kEmpties) payload = filler_;
  operation_->Send(Target(), index_, payload);
}

MessageVerdict LinkProbe::OnMessage(NodeIndex from, std::uint32_t index,
                                    std::span<const std::byte> payload) noexcept {
  if ((index & kAnswer) != 0) {
    const bool awaited = round_ < node_count_ && begun_ && !target_done_ &&
                         from.value() == Target() && index == (kAnswer | index_);
    if (!awaited || !payload.empty()) return MessageVerdict::kInvalid;
    OnAnswer();
    return MessageVerdict::kConsumed;
  }
  std::uint32_t& next = next_index_[static_cast<std::size_t>(from.value())];
  if (index == kLast) {
    if (next <= kEmpties || next > kLast || !payload.empty()) return MessageVerdict::kInvalid;
    next = kLast + 1;
    ++done_senders_;
    GoOnIfDone();
    return MessageVerdict::kConsumed;
  }
  const std::size_t expected = index < kEmpties ? 0 : kLinkProbeBytes;
  if (index != next || index >= kMostMessages || payload.size() != expected) {
    return MessageVerdict::kInvalid;
  }
  ++next;
  operation_->Send(from.value(), kAnswer | index, {});
  return MessageVerdict::kConsumed;
}

void LinkProbe::OnAnswer() noexcept {
  const std::chrono::nanoseconds took = TimeClock::now() - sent_at_;
  if (index_ < kEmpties) {
    round_trip_ = std::min(round_trip_, took);
  } else if (index_ >= kEmpties + kWarmUps || took >= kLong) {
    message_ = std::min(message_, took);
    counted_ += took;
  }
  ++index_;
  if (index_ < kMostMessages && counted_ < kEnough) {
    SendNext();
    return;
  }
  const LinkTimes times{Seconds(round_trip_), Seconds(message_)};
  std::memcpy(operation_->at(static_cast<std::size_t>(Target()) * sizeof(LinkTimes)), &times,
              sizeof(times));
  operation_->Send(Target(), kLast, {});
  target_done_ = true;
  GoOnIfDone();
}

void LinkProbe::GoOnIfDone() noexcept {
  while (round_ < node_count_ && target_done_ &&
         next_index_[static_cast<std::size_t>(Source())] > kLast) {
    ++round_;
    begun_ = target_done_ = false;
    Advance();
  }
}

}  // namespace ringd
