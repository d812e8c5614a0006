#include "backends/collectives/dissemination_barrier.h"

#include <bit>

#include "backends/collectives/operation.h"

namespace ringd {
namespace {

std::int32_t NodeAfter(const Operation& operation, std::uint32_t round) noexcept {
  return static_cast<std::int32_t>((operation.self() + (std::int64_t{1} << round)) %
                                   operation.node_count());
}

std::int32_t NodeBefore(const Operation& operation, std::uint32_t round) noexcept {
  // 2^round is less than the number of nodes.
  return static_cast<std::int32_t>(
      (operation.self() + operation.node_count() - (std::int64_t{1} << round)) %
      operation.node_count());
}

}  // namespace

void DisseminationBarrier::Begin(Operation& operation) {
  operation_ = &operation;
  round_count_ = static_cast<std::uint32_t>(
      std::bit_width(static_cast<std::uint32_t>(operation.node_count()) - 1));
  told_ = passed_ = 0;
  heard_ = 0;
  for (std::uint32_t round = 0; round < round_count_; ++round) {
    operation.SendsTo(NodeAfter(operation, round), 1);
    operation.ReceivesFrom(NodeBefore(operation, round), 1, 1);
  }
}

bool DisseminationBarrier::Advance() noexcept {
  while (passed_ < round_count_) {
    if (told_ == passed_) {
      operation_->Send(NodeAfter(*operation_, told_), told_, {});
      ++told_;
    }
    if ((heard_ >> passed_ & 1) == 0) break;
    ++passed_;
  }
  return false;
}

MessageVerdict DisseminationBarrier::OnMessage(NodeIndex from, std::uint32_t index,
                                               std::span<const std::byte> payload) noexcept {
  if (index >= round_count_ || from.value() != NodeBefore(*operation_, index) ||
      (heard_ >> index & 1) != 0 || !payload.empty()) {
    return MessageVerdict::kInvalid;
  }
  heard_ |= std::uint64_t{1} << index;
  Advance();
  return MessageVerdict::kConsumed;
}

}  // namespace ringd
