#include "backends/collectives/tree_broadcast.h"

#include <bit>

#include "backends/collectives/operation.h"

namespace ringd {

void TreeBroadcast::Begin(Operation& operation) {
  operation_ = &operation;
  const auto node_count = static_cast<std::uint32_t>(operation.node_count());
  const auto root = static_cast<std::uint32_t>(operation.request().root.value());
  const std::uint32_t place =
      (static_cast<std::uint32_t>(operation.self()) + node_count - root) % node_count;
  is_root_ = place == 0;
  map_ = BlockMap::Even(operation.total_bytes(), 1, operation.algorithms().chunk_bytes);
  chunk_count_ = map_.MaxChunkCount();
  have_ = 0;
  children_.clear();
  seen_.assign(chunk_count_, false);
  chunks_.assign(chunk_count_, {});
  if (chunk_count_ == 0) return;
  AddChildren(place, node_count);
  for (const Child& child : children_) operation.SendsTo(child.node, 0);
  if (!is_root_) {
    const std::uint32_t parent = shape_ == Shape::kChain ? place - 1 : place & (place - 1);
    operation.ReceivesFrom(NodeOf(parent), chunk_count_, 0);
  }
}

void TreeBroadcast::AddChildren(std::uint32_t place, std::uint32_t node_count) {
  if (shape_ == Shape::kChain) {
    if (place + 1 < node_count) children_.push_back({NodeOf(place + 1), 0});
    return;
  }
  // The child with the largest subtree first.
  const std::uint32_t lowest_bit = place == 0 ? std::bit_ceil(node_count) : place & (~place + 1);
  for (std::uint32_t bit = lowest_bit / 2; bit > 0; bit /= 2) {
    if (place + bit < node_count) children_.push_back({NodeOf(place + bit), 0});
  }
}

bool TreeBroadcast::Advance() noexcept {
  bool more = false;
  if (is_root_) {
    std::uint32_t budget = kChunksPerAdvance;
    while (have_ < chunk_count_) {
      if (budget-- == 0) {
        more = true;
        break;
      }
      const ByteRange range = map_.Chunk(0, have_);
      const auto input = operation_->Input(range);
      if (input.empty()) break;
      operation_->OnResult(range, input, false);
      chunks_[have_] = input;
      seen_[have_++] = true;
    }
  }
  for (Child& child : children_) {
    while (child.sent < chunk_count_ && seen_[child.sent] && operation_->CanSend(child.node)) {
      operation_->Send(child.node, child.sent, chunks_[child.sent]);
      ++child.sent;
    }
  }
  return more;
}

MessageVerdict TreeBroadcast::OnMessage(NodeIndex /*from*/, std::uint32_t index,
                                        std::span<const std::byte> payload) noexcept {
  if (is_root_ || index >= chunk_count_ || seen_[index]) return MessageVerdict::kInvalid;
  const ByteRange range = map_.Chunk(0, index);
  if (payload.size() != range.size()) return MessageVerdict::kInvalid;
  chunks_[index] = operation_->OnResult(range, payload, !children_.empty());
  seen_[index] = true;
  ++have_;
  Advance();
  return MessageVerdict::kConsumed;
}

bool TreeBroadcast::IsComplete() const noexcept {
  if (have_ != chunk_count_) return false;
  for (const Child& child : children_) {
    if (child.sent != chunk_count_) return false;
  }
  return true;
}

std::int32_t TreeBroadcast::NodeOf(std::uint32_t place) const noexcept {
  return (static_cast<std::int32_t>(place) + operation_->request().root.value()) %
         operation_->node_count();
}

}  // namespace ringd
