// What is given up, and what becomes of operations when the rank exchange ends.
#include <sys/socket.h>

#include "proto/rank_exchange/rank_exchange.h"

namespace ringd {

void RankExchange::GiveUp(std::uint32_t cell) noexcept {
  RankExchangeCell& lost = view_.Cell(cell);
  const RankExchangeKey key{lost.signature, lost.occurrence};
  const RankExchangeNodeSet told = view_.Children(view_.TreeOf(lost.bytes));
  lost.state.store(RankExchangeCellState::kGivenUp, std::memory_order_release);
  SendTo(told, RankExchangeMessageKind::kGiveUp, key, {});
  Announce(cell, RankExchangeCellState::kGivenUp);
}

void RankExchange::GiveUpUnanswered() noexcept {
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    RankExchangeCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_acquire) != RankExchangeCellState::kSent) continue;
    if (view_.is_pair()) {
      End(i, RankExchangeCellState::kGivenUp);
    } else if (view_.Parent(view_.TreeOf(cell.bytes)) == 0) {
      GiveUp(i);
    }
  }
}

void RankExchange::Break(RankExchangeBreak why) noexcept {
  std::uint32_t unbroken = 0;
  if (view_.control().broken.compare_exchange_strong(unbroken, why.ToWord(),
                                                     std::memory_order_acq_rel)) {
    // Before what is given up: it does not have to be told then.
    if (view_.is_hub()) {
      SendTo(view_.Children(RankExchangeTree::kFlat), RankExchangeMessageKind::kStop, {}, {});
    } else if (!view_.is_pair() && why.node != 0) {
      SendTo(NodeBit(0), RankExchangeMessageKind::kStop, {}, {});
    }
    for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
      if (view_.Cell(i).state.load(std::memory_order_acquire) != RankExchangeCellState::kGathers) {
        continue;
      }
      if (view_.is_hub() || view_.is_pair()) {
        End(i, RankExchangeCellState::kGivenUp);
      } else {
        GiveUp(i);
      }
    }
  }
  if (why.reason != RankExchangeBreak::Reason::kStopped) {
    HangUp(why.node);
  } else if (!view_.is_hub()) {
    GiveUpUnanswered();
  }
}

void RankExchange::HangUp(std::uint32_t node) noexcept {
  std::atomic<std::uint32_t>& closed = view_.control().closed;
  if ((closed.fetch_or(NodeBit(node), std::memory_order_acq_rel) & NodeBit(node)) != 0) return;
  // The other side shall not wait for an answer that nobody will send.
  ::shutdown(connections_[node].get(), SHUT_RDWR);
  constexpr RankExchangeTree kTree = RankExchangeTree::kKnomial;
  if (!view_.has_knomial() || view_.is_hub() || node != view_.Parent(kTree)) return;
  for (RankExchangeNodeSet children = view_.Children(kTree); children != 0;) {
    HangUp(TakeLowest(children));
  }
}

}  // namespace ringd
