// What is given up, and what becomes of operations when the fast path ends.
#include <sys/socket.h>

#include "proto/fast_path/fast_path_exchange.h"

namespace ringd {

void FastPathExchange::GiveUp(std::uint32_t cell) noexcept {
  FastPathCell& lost = view_.Cell(cell);
  const FastPathKey key{lost.signature, lost.occurrence};
  const FastPathNodeSet told = view_.Children(view_.TreeOf(lost.bytes));
  lost.state.store(FastPathCellState::kGivenUp, std::memory_order_release);
  SendTo(told, FastPathMessageKind::kGiveUp, key, {});
  Announce(cell, FastPathCellState::kGivenUp);
}

void FastPathExchange::GiveUpUnanswered() noexcept {
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    FastPathCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_acquire) != FastPathCellState::kSent) continue;
    if (view_.is_pair()) {
      End(i, FastPathCellState::kGivenUp);
    } else if (view_.Parent(view_.TreeOf(cell.bytes)) == 0) {
      GiveUp(i);
    }
  }
}

void FastPathExchange::Break(FastPathBreak why) noexcept {
  std::uint32_t unbroken = 0;
  if (view_.control().broken.compare_exchange_strong(unbroken, why.ToWord(),
                                                     std::memory_order_acq_rel)) {
    // Before what is given up: it does not have to be told then.
    if (view_.is_root()) {
      SendTo(view_.Children(FastPathTree::kFlat), FastPathMessageKind::kStop, {}, {});
    } else if (!view_.is_pair() && why.node != 0) {
      SendTo(NodeBit(0), FastPathMessageKind::kStop, {}, {});
    }
    for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
      if (view_.Cell(i).state.load(std::memory_order_acquire) != FastPathCellState::kGathers) {
        continue;
      }
      if (view_.is_root() || view_.is_pair()) {
        End(i, FastPathCellState::kGivenUp);
      } else {
        GiveUp(i);
      }
    }
  }
  if (why.reason != FastPathBreak::Reason::kStopped) {
    HangUp(why.node);
  } else if (!view_.is_root()) {
    GiveUpUnanswered();
  }
}

void FastPathExchange::HangUp(std::uint32_t node) noexcept {
  std::atomic<std::uint32_t>& closed = view_.control().closed;
  if ((closed.fetch_or(NodeBit(node), std::memory_order_acq_rel) & NodeBit(node)) != 0) return;
  // The other side shall not wait for an answer that nobody will send.
  ::shutdown(connections_[node].get(), SHUT_RDWR);
  constexpr FastPathTree kTree = FastPathTree::kKnomial;
  if (!view_.has_knomial() || view_.is_root() || node != view_.Parent(kTree)) return;
  for (FastPathNodeSet children = view_.Children(kTree); children != 0;) {
    HangUp(TakeLowest(children));
  }
}

}  // namespace ringd
