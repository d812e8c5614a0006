#include "backends/collectives/ring.h"

#include <cstring>

#include "backends/collectives/operation.h"

namespace ringd {

void Ring::Begin(Operation& operation) {
  operation_ = &operation;
  layout_ = RingLayoutOf(operation.request(), operation.place());
  successor_ = static_cast<std::int32_t>(layout_.successor());
  const BlockMap& map = layout_.map();
  sent_ = received_ = to_send_ = to_receive_ = first_taken_ = 0;
  first_chunks_ = map.ChunkCount(layout_.SentBlock(0));
  for (std::uint32_t step = 0; step < layout_.step_count(); ++step) {
    to_send_ += map.ChunkCount(layout_.SentBlock(step));
    to_receive_ += map.ChunkCount(layout_.SentBlock(step + 1));
  }
  to_forward_.clear();
  to_forward_.reserve(to_send_);
  forwarded_ = 0;
  seen_.assign(layout_.index_count(), false);
  if (layout_.step_count() == 0) return;
  const bool all_wait_for_all =
      !TraitsOf(operation.request().kind).HasParts() || !map.HasEmptyBlock();
  const std::uint32_t credit = all_wait_for_all ? Operation::kInitialCredit : 0;
  operation.SendsTo(successor_, credit);
  operation.ReceivesFrom(static_cast<std::int32_t>(layout_.predecessor()), to_receive_, credit);
}

bool Ring::Advance() noexcept {
  if (layout_.step_count() == 0) return AdvanceAlone();
  while (operation_->CanSend(successor_)) {
    // The first block's chunks have the longest way to go.
    if (first_taken_ < first_chunks_) {
      const auto input = TakeFirst();
      if (!input.empty()) {
        operation_->Send(successor_, first_taken_++, input);
        ++sent_;
        continue;
      }
    }
    if (forwarded_ == to_forward_.size()) break;
    const Outgoing& outgoing = to_forward_[forwarded_++];
    operation_->Send(successor_, outgoing.index, outgoing.payload);
    ++sent_;
  }
  return false;
}

std::span<const std::byte> Ring::TakeFirst() noexcept {
  const ByteRange range = layout_.map().Chunk(layout_.SentBlock(0), first_taken_);
  const auto input = operation_->Input(range);
  // Where nothing is combined, the input is the result, also here.
  if (!input.empty() && layout_.reduce_steps() == 0) operation_->OnResult(range, input, false);
  return input;
}

bool Ring::AdvanceAlone() noexcept {
  const bool combines = TraitsOf(operation_->request().kind).combines;
  for (std::uint32_t left = kChunksPerAdvance; first_taken_ < first_chunks_; ++first_taken_) {
    if (left-- == 0) return true;
    const ByteRange range = layout_.map().Chunk(layout_.SentBlock(0), first_taken_);
    const auto input = operation_->Input(range);
    if (input.empty()) return false;
    if (!combines) {
      operation_->OnResult(range, input, false);
      continue;
    }
    std::byte* const buffer = operation_->at(range.begin);
    if (input.data() != buffer) std::memcpy(buffer, input.data(), input.size());
    operation_->OnCombined(range);
  }
  return false;
}

MessageVerdict Ring::OnMessage(NodeIndex /*from*/, std::uint32_t index,
                               std::span<const std::byte> payload) noexcept {
  if (index >= seen_.size() || seen_[index]) return MessageVerdict::kInvalid;
  const std::uint32_t step = layout_.StepOf(index);
  const std::uint32_t chunk = layout_.ChunkOf(index);
  const std::uint32_t block = layout_.SentBlock(step + 1);
  if (chunk >= layout_.map().ChunkCount(block)) return MessageVerdict::kInvalid;
  const ByteRange range = layout_.map().Chunk(block, chunk);
  if (payload.size() != range.size()) return MessageVerdict::kInvalid;

  const bool forwards = step + 1 < layout_.step_count();
  std::span<const std::byte> outgoing;
  if (step + 1 < layout_.reduce_steps()) {
    if (!operation_->AddInput(range, payload)) return MessageVerdict::kNotYet;
    outgoing = operation_->at(range);
  } else if (step + 1 == layout_.reduce_steps()) {
    outgoing = operation_->AddLastInput(range, payload);
    if (outgoing.empty()) return MessageVerdict::kNotYet;
  } else {
    outgoing = operation_->OnResult(range, payload, forwards);
  }
  seen_[index] = true;
  ++received_;
  if (forwards) {
    to_forward_.push_back({layout_.IndexOf(step + 1, chunk), outgoing});
    Advance();
  }
  return MessageVerdict::kConsumed;
}

}  // namespace ringd
