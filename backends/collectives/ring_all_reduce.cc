#include "backends/collectives/ring_all_reduce.h"

#include "backends/collectives/operation.h"

namespace ringd {

void RingAllReduce::Begin(Operation& operation) {
  operation_ = &operation;
  node_count_ = static_cast<std::uint32_t>(operation.node_count());
  self_ = static_cast<std::uint32_t>(operation.self());
  successor_ = static_cast<std::int32_t>((self_ + 1) % node_count_);
  const auto predecessor = static_cast<std::int32_t>((self_ + node_count_ - 1) % node_count_);
  chunking_ = Chunking(operation.total_bytes(), node_count_, operation.algorithms().chunk_bytes);
  step_count_ = 2 * (node_count_ - 1);
  chunks_per_step_ = chunking_.MaxChunkCount();
  sent_ = received_ = to_send_ = to_receive_ = own_chunks_sent_ = 0;
  for (std::uint32_t step = 0; step < step_count_; ++step) {
    to_send_ += chunking_.ChunkCount(SentBlock(step));
    to_receive_ += chunking_.ChunkCount(SentBlock(step + 1));
  }
  to_forward_.clear();
  to_forward_.reserve(to_send_);
  forwarded_ = 0;
  seen_.assign(std::size_t{step_count_} * chunks_per_step_, false);
  operation.SendsTo(successor_, Operation::kInitialCredit);
  operation.ReceivesFrom(predecessor, to_receive_, Operation::kInitialCredit);
}

bool RingAllReduce::Advance() noexcept {
  const std::uint32_t own_chunks = chunking_.ChunkCount(self_);
  while (operation_->CanSend(successor_)) {
    // The own block first: its chunks have the longest way to go.
    if (own_chunks_sent_ < own_chunks) {
      const auto input = operation_->Input(chunking_.Chunk(self_, own_chunks_sent_));
      if (!input.empty()) {
        operation_->Send(successor_, own_chunks_sent_++, input);
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

MessageVerdict RingAllReduce::OnMessage(NodeIndex /*from*/, std::uint32_t index,
                                        std::span<const std::byte> payload) noexcept {
  if (index >= seen_.size() || seen_[index]) return MessageVerdict::kInvalid;
  const std::uint32_t step = index / chunks_per_step_;
  const std::uint32_t chunk = index % chunks_per_step_;
  const std::uint32_t block = SentBlock(step + 1);
  if (chunk >= chunking_.ChunkCount(block)) return MessageVerdict::kInvalid;
  const ByteRange range = chunking_.Chunk(block, chunk);
  if (payload.size() != range.size()) return MessageVerdict::kInvalid;

  const bool forwards = step + 1 < step_count_;
  const std::uint32_t last_addition = node_count_ - 2;
  std::span<const std::byte> outgoing;
  if (step < last_addition) {
    if (!operation_->AddInput(range, payload)) return MessageVerdict::kNotYet;
    outgoing = operation_->at(range);
  } else if (step == last_addition) {
    outgoing = operation_->AddLastInput(range, payload);
    if (outgoing.empty()) return MessageVerdict::kNotYet;
  } else {
    outgoing = operation_->OnResult(range, payload, forwards);
  }
  seen_[index] = true;
  ++received_;
  if (forwards) {
    to_forward_.push_back({index + chunks_per_step_, outgoing});
    Advance();
  }
  return MessageVerdict::kConsumed;
}

std::uint32_t RingAllReduce::SentBlock(std::uint32_t step) const noexcept {
  return (self_ + 2 * node_count_ - step) % node_count_;
}

}  // namespace ringd
