#include "backends/collectives/doubling_all_reduce.h"

#include <bit>

#include "backends/collectives/operation.h"
#include "proto/reduce/reduce.h"

namespace ringd {

void DoublingAllReduce::Begin(Operation& operation) {
  operation_ = &operation;
  const auto node_count = static_cast<std::uint32_t>(operation.node_count());
  const auto self = static_cast<std::uint32_t>(operation.self());
  const std::uint32_t exchanging = std::bit_floor(node_count);
  extra_ = node_count - exchanging;
  round_count_ = static_cast<std::uint32_t>(std::countr_zero(exchanging));
  round_ = 0;
  const bool paired = self < 2 * extra_;
  gives_away_ = paired && self % 2 == 0;
  pair_partner_ = paired ? static_cast<std::int32_t>(self ^ 1) : -1;
  place_ = paired ? self / 2 : self - extra_;
  if (operation.total_bytes() == 0) {
    stage_ = Stage::kComplete;
    return;
  }
  stage_ = Stage::kWaitsForInput;
  // One message each way with each partner: no credit is needed.
  if (paired) {
    operation.SendsTo(pair_partner_, 1);
    operation.ReceivesFrom(pair_partner_, 1, 1);
  }
  if (gives_away_) return;
  for (std::uint32_t round = 0; round < round_count_; ++round) {
    operation.SendsTo(RoundPartner(round), 1);
    operation.ReceivesFrom(RoundPartner(round), 1, 1);
  }
}

bool DoublingAllReduce::Advance() noexcept {
  if (stage_ == Stage::kWaitsForInput) {
    partial_ = operation_->Input(all());
    if (partial_.empty()) return false;
    if (gives_away_) {
      operation_->Send(pair_partner_, kInputIndex, partial_);
      stage_ = Stage::kAwaitsResult;
    } else if (pair_partner_ >= 0) {
      stage_ = Stage::kAwaitsPartner;
    } else {
      EnterRound(0);
    }
  }
  if (stage_ == Stage::kMustSendRound) {
    operation_->Send(RoundPartner(round_), 1 + round_, partial_);
    stage_ = Stage::kAwaitsRound;
  } else if (stage_ == Stage::kMustSendResult) {
    operation_->OnCombined(all());
    operation_->Send(pair_partner_, kResultIndex, partial_);
    stage_ = Stage::kComplete;
  }
  return false;
}

MessageVerdict DoublingAllReduce::OnMessage(NodeIndex from, std::uint32_t index,
                                            std::span<const std::byte> payload) noexcept {
  if (payload.size() != operation_->total_bytes()) return MessageVerdict::kInvalid;
  const bool from_pair = from.value() == pair_partner_ && (index == kInputIndex) == !gives_away_;
  if (index == kInputIndex || index == kResultIndex) {
    if (!from_pair) return MessageVerdict::kInvalid;
  } else if (gives_away_ || index > round_count_ || from.value() != RoundPartner(index - 1)) {
    return MessageVerdict::kInvalid;
  }

  const bool expected = (index == kInputIndex && stage_ == Stage::kAwaitsPartner) ||
                        (index == kResultIndex && stage_ == Stage::kAwaitsResult) ||
                        (stage_ == Stage::kAwaitsRound && index == 1 + round_);
  // What is still being sent must not change.
  if (!expected || operation_->sends_in_progress() > 0) return MessageVerdict::kNotYet;

  if (index == kResultIndex) {
    operation_->OnResult(all(), payload, false);
    stage_ = Stage::kComplete;
    return MessageVerdict::kConsumed;
  }
  Reduce(from, payload);
  EnterRound(index == kInputIndex ? 0 : round_ + 1);
  Advance();
  return MessageVerdict::kConsumed;
}

void DoublingAllReduce::EnterRound(std::uint32_t round) noexcept {
  round_ = round;
  if (round < round_count_) {
    stage_ = Stage::kMustSendRound;
  } else if (pair_partner_ >= 0) {
    stage_ = Stage::kMustSendResult;
  } else {
    operation_->OnCombined(all());
    stage_ = Stage::kComplete;
  }
}

void DoublingAllReduce::Reduce(NodeIndex from, std::span<const std::byte> payload) noexcept {
  const CollectiveRequest& request = operation_->request();
  const bool is_own_first = operation_->self() < from.value();
  const void* const sources[] = {is_own_first ? partial_.data() : payload.data(),
                                 is_own_first ? payload.data() : partial_.data()};
  ReduceMany(request.data_type, request.op, sources, operation_->at(0), request.element_count,
             Streaming::kCached);
  partial_ = operation_->at(all());
}

ByteRange DoublingAllReduce::all() const noexcept { return {0, operation_->total_bytes()}; }

std::int32_t DoublingAllReduce::NodeOf(std::uint32_t place) const noexcept {
  return static_cast<std::int32_t>(place < extra_ ? 2 * place + 1 : place + extra_);
}

std::int32_t DoublingAllReduce::RoundPartner(std::uint32_t round) const noexcept {
  return NodeOf(place_ ^ (1u << round));
}

}  // namespace ringd
