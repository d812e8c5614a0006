#include "proto/rank_exchange/rank_exchange.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/errno_status.h"
#include "proto/rank_exchange/rank_exchange_lock.h"
#include "proto/reduce/reduce.h"

namespace ringd {

std::uint64_t RankExchangeSignature(std::span<const char> description) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : description) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

absl::StatusOr<std::unique_ptr<RankExchange>> RankExchange::Create(
    RankExchangeView view, std::uint32_t self, std::vector<UniqueFd> connections) {
  const RankExchangeNodeSet neighbours = view.Neighbours();
  const RankExchangeNodeSet expected = neighbours | NodeBit(view.node_index());
  bool complete = connections.size() == view.node_count();
  for (RankExchangeNodeSet left = expected; complete && left != 0;) {
    complete = connections[TakeLowest(left)].valid();
  }
  if (!complete) return absl::InvalidArgumentError("a connection of the rank exchange is missing");
  UniqueFd epoll;
  // Who may be told by several, or by local ranks that end operations while it waits.
  if (view.is_hub() || view.is_pair() || std::popcount(neighbours) > 1) {
    epoll = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
    for (RankExchangeNodeSet left = expected; left != 0;) {
      const std::uint32_t node = TakeLowest(left);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u32 = node;
      if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, connections[node].get(), &event) != 0) {
        return ErrnoStatus(errno, "epoll_ctl");
      }
    }
  } else {
    const timeval turn{0, std::chrono::microseconds(kTurn).count()};
    if (::setsockopt(connections[0].get(), SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof(turn)) != 0) {
      return ErrnoStatus(errno, "setsockopt(SO_RCVTIMEO)");
    }
  }
  return std::unique_ptr<RankExchange>(
      new RankExchange(view, self, std::move(connections), std::move(epoll)));
}

RankExchange::RankExchange(RankExchangeView view, std::uint32_t self,
                           std::vector<UniqueFd> connections, UniqueFd epoll)
    : view_(view),
      self_(self),
      neighbours_(view.Neighbours()),
      connections_(std::move(connections)),
      epoll_(std::move(epoll)) {}

RankExchange::~RankExchange() {
  const linger off{};
  for (const UniqueFd& connection : connections_) {
    if (!connection.valid()) continue;
    ::setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &off, sizeof(off));
  }
}

std::uint32_t RankExchange::own_name() const noexcept {
  return self_ == kRankExchangeRingd ? kRankExchangeRingd : self_ + 1;
}

std::uint64_t RankExchange::all_members() const noexcept {
  return ~std::uint64_t{0} >> (kRankExchangeMostMembers - view_.member_count());
}

bool RankExchange::Usable() const noexcept {
  return view_.control().broken.load(std::memory_order_acquire) == 0;
}

RankExchangeBreak RankExchange::WhyBroken() const noexcept {
  return RankExchangeBreak::FromWord(view_.control().broken.load(std::memory_order_acquire));
}

// ---- what a member does
// ----------------------------------------------------------------------------

RankExchangeOutcome RankExchange::Contribute(const RankExchangeContribution& contribution,
                                             std::uint32_t& cell) {
  const std::uint64_t bytes = contribution.bytes();
  if (bytes > view_.limit_bytes() || !Usable()) return RankExchangeOutcome::kGivenUp;
  const RankExchangeLock lock(view_.control().lock, own_name(), kLockPatience);
  // Without the lock nothing has been contributed, so this rank may go the other way.
  if (!lock.held() || !Usable()) return RankExchangeOutcome::kGivenUp;
  cell = FindCell(contribution.key);
  if (cell == kNoCell) cell = MakeCell(contribution.key, bytes);
  if (cell == kNoCell) return RankExchangeOutcome::kGivenUp;
  RankExchangeCell& to = view_.Cell(cell);
  const std::uint64_t own_bit = std::uint64_t{1} << self_;
  if (to.state.load(std::memory_order_relaxed) == RankExchangeCellState::kGathers &&
      to.bytes != bytes) {
    GiveUp(cell);
  }
  if (to.state.load(std::memory_order_relaxed) != RankExchangeCellState::kGathers ||
      (to.members & own_bit) != 0) {
    // A decision that came before any member.
    const bool counts = to.members == 0 && to.departed.load(std::memory_order_relaxed) == 0 &&
                        to.state.load(std::memory_order_relaxed) == RankExchangeCellState::kGivenUp;
    if (counts) view_.control().given_up.fetch_add(1, std::memory_order_relaxed);
    Leave(cell);
    return RankExchangeOutcome::kGivenUp;
  }
  to.data_type = static_cast<std::uint8_t>(contribution.data_type);
  to.op = static_cast<std::uint8_t>(contribution.op);
  to.members |= own_bit;
  if (to.members != all_members()) {
    if (bytes > 0) std::memcpy(view_.MemberPayload(cell, self_), contribution.source, bytes);
    ShowAwaited();
    return RankExchangeOutcome::kPending;
  }
  const RankExchangeTree tree = view_.TreeOf(bytes);
  const bool is_leaf = !view_.is_pair() && view_.Children(tree) == 0;
  // What needs no combining goes out from where it lies: the other waits for it, and for no copy.
  const bool as_it_lies =
      (is_leaf || view_.is_pair()) && view_.member_count() == 1 && contribution.prescale == 1;
  if (!as_it_lies) CombineMembers(cell, contribution);
  if (is_leaf || view_.is_pair()) {
    const std::uint32_t receiver = view_.Parent(tree);
    const RankExchangeBreak broken = SendInput(receiver, cell, contribution, as_it_lies);
    if (broken.reason != RankExchangeBreak::Reason::kNone) {
      Break(broken);
    } else {
      if (is_leaf) to.awaits = NodeBit(receiver);
      to.state.store(RankExchangeCellState::kSent, std::memory_order_relaxed);
    }
  }
  if (!is_leaf && Usable()) {
    if (as_it_lies) CombineMembers(cell, contribution);
    const std::uint32_t own = view_.node_index();
    ForwardIfWhole(cell, own, view_.NodePayload(cell, own));
  }
  ShowAwaited();
  const RankExchangeOutcome outcome = Look(cell);
  if (outcome == RankExchangeOutcome::kGivenUp) Leave(cell);  // it could not be sent
  return outcome;
}

RankExchangeOutcome RankExchange::Look(std::uint32_t cell) const noexcept {
  // Acquire pairs with the release in End: who sees the end sees the result.
  switch (view_.Cell(cell).state.load(std::memory_order_acquire)) {
    case RankExchangeCellState::kDone:
      return RankExchangeOutcome::kCompleted;
    case RankExchangeCellState::kGivenUp:
      return RankExchangeOutcome::kGivenUp;
    default:
      return RankExchangeOutcome::kPending;
  }
}

void RankExchange::Take(std::uint32_t cell, DataType data_type, void* destination,
                        std::uint64_t element_count, Scaling postscale) noexcept {
  CopyScaled(data_type, destination, view_.Result(cell), element_count, postscale,
             Streaming::kCached);
  Leave(cell);
}

void RankExchange::Depart(std::uint32_t cell) noexcept { Leave(cell); }

void RankExchange::Leave(std::uint32_t cell) noexcept {
  RankExchangeCell& from = view_.Cell(cell);
  const std::uint64_t own_bit = std::uint64_t{1} << self_;
  const std::uint64_t departed = from.departed.fetch_or(own_bit, std::memory_order_acq_rel);
  if ((departed | own_bit) == all_members()) {
    from.state.store(RankExchangeCellState::kFree, std::memory_order_release);
  }
}

void RankExchange::Sleep(std::uint32_t cell, std::chrono::nanoseconds most) const noexcept {
  view_.Cell(cell).doorbell.Wait(most, [&] {
    return Look(cell) != RankExchangeOutcome::kPending ||
           view_.control().driver.load(std::memory_order_relaxed) == kRankExchangeNobody;
  });
}

// ---- cells
// ---------------------------------------------------------------------------------------------

std::uint32_t RankExchange::FindCell(const RankExchangeKey& key) const noexcept {
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    const RankExchangeCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_acquire) != RankExchangeCellState::kFree &&
        cell.signature == key.signature && cell.occurrence == key.occurrence) {
      return i;
    }
  }
  return kNoCell;
}

std::uint32_t RankExchange::MakeCell(const RankExchangeKey& key, std::size_t bytes) noexcept {
  std::uint32_t found = kNoCell;
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    const RankExchangeCell& cell = view_.Cell(i);
    const RankExchangeCellState state = cell.state.load(std::memory_order_acquire);
    if (state == RankExchangeCellState::kFree) {
      found = i;
      break;
    }
    // Those who wait in it have to see it; for those who have not come it may be forgotten. If all
    // have left, the last of them is about to free it.
    const std::uint64_t departed = cell.departed.load(std::memory_order_acquire);
    const bool watched = (cell.members & ~departed) != 0;
    if (state != RankExchangeCellState::kGivenUp || watched || departed == all_members()) continue;
    if (found == kNoCell || cell.created_ns.load(std::memory_order_relaxed) <
                                view_.Cell(found).created_ns.load(std::memory_order_relaxed)) {
      found = i;
    }
  }
  if (found == kNoCell) return kNoCell;
  RankExchangeCell& cell = view_.Cell(found);
  cell.bytes = static_cast<std::uint32_t>(bytes);
  cell.departed.store(0, std::memory_order_relaxed);
  cell.signature = key.signature;
  cell.occurrence = key.occurrence;
  cell.created_ns.store(MonotonicNanos(), std::memory_order_relaxed);
  cell.members = 0;
  cell.awaits = view_.Children(view_.TreeOf(bytes));
  cell.state.store(RankExchangeCellState::kGathers, std::memory_order_release);
  return found;
}

void RankExchange::CombineMembers(std::uint32_t cell,
                                  const RankExchangeContribution& last) noexcept {
  std::array<const void*, kRankExchangeMostMembers> sources;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    sources[m] = m == self_ ? last.source : view_.MemberPayload(cell, m);
  }
  void* const partial = view_.NodePayload(cell, view_.node_index());
  CombineContributions(last.data_type, last.op, last.prescale, nullptr,
                       {sources.data(), view_.member_count()}, {&partial, 1}, last.element_count,
                       {}, Streaming::kCached);
}

bool RankExchange::ForwardIfWhole(std::uint32_t cell, std::uint32_t brought_by,
                                  const void* brought) noexcept {
  RankExchangeCell& whole = view_.Cell(cell);
  if (whole.awaits != 0 || whole.members != all_members()) return false;
  // Ranks may write here at any time: each is read once.
  const auto type = static_cast<DataType>(__atomic_load_n(&whole.data_type, __ATOMIC_RELAXED));
  const auto op = static_cast<ReduceOp>(__atomic_load_n(&whole.op, __ATOMIC_RELAXED));
  const std::uint32_t said = __atomic_load_n(&whole.bytes, __ATOMIC_RELAXED);
  const std::size_t bytes = std::min(said, view_.limit_bytes());
  const RankExchangeTree tree = view_.TreeOf(bytes);
  const RankExchangeNodeSet children = view_.Children(tree);
  if (bytes > 0 && IsValid(type) && IsValid(op)) {
    std::array<const void*, kRankExchangeMostNodes> sources;
    std::size_t count = 0;
    RankExchangeNodeSet nodes = NodeBit(view_.node_index()) | children;
    while (nodes != 0) {
      const std::uint32_t node = TakeLowest(nodes);
      sources[count++] = node == brought_by ? brought : view_.NodePayload(cell, node);
    }
    ReduceMany(type, op, {sources.data(), count}, view_.Result(cell), bytes / SizeOf(type),
               Streaming::kCached);
  }
  const RankExchangeKey key{whole.signature, whole.occurrence};
  const iovec combined{view_.Result(cell), bytes};
  if (!view_.is_pair() && !view_.is_hub()) {
    const std::uint32_t parent = view_.Parent(tree);
    const RankExchangeBreak broken = Send(parent, RankExchangeMessageKind::kInput, key, combined);
    if (broken.reason != RankExchangeBreak::Reason::kNone) {
      Break(broken);
    } else {
      whole.awaits = NodeBit(parent);
      whole.state.store(RankExchangeCellState::kSent, std::memory_order_relaxed);
    }
    return true;
  }
  // From here on it can't be given up, not even if a connection breaks now. Of a pair each does
  // this by itself.
  whole.state.store(RankExchangeCellState::kDone, std::memory_order_release);
  if (!view_.is_pair()) SendTo(children, RankExchangeMessageKind::kResult, key, combined);
  Announce(cell, RankExchangeCellState::kDone);
  return true;
}

void RankExchange::End(std::uint32_t cell, RankExchangeCellState state) noexcept {
  view_.Cell(cell).state.store(state, std::memory_order_release);
  Announce(cell, state);
}

void RankExchange::Announce(std::uint32_t cell, RankExchangeCellState state) noexcept {
  RankExchangeControl& control = view_.control();
  std::atomic<std::uint64_t>& count =
      state == RankExchangeCellState::kDone ? control.completed : control.given_up;
  count.fetch_add(1, std::memory_order_relaxed);
  view_.Cell(cell).doorbell.Ring();
  // If ringd does this it drives itself, whatever `driver` says; and a full eventfd that a member
  // has made blocking would hold it up.
  if (!epoll_.valid() || self_ == kRankExchangeRingd) return;
  // The driver may be asleep for messages, and in this operation itself. The fence pairs with the
  // one in BecomeDriver: the end before, the look for a driver after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t driver = control.driver.load(std::memory_order_relaxed);
  if (driver == kRankExchangeNobody || driver == kRankExchangeRingd || driver == own_name()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      ::write(connections_[view_.node_index()].get(), &one, sizeof(one));
}

bool RankExchange::IsOverdue(std::uint32_t cell, std::uint64_t now_ns) const noexcept {
  constexpr auto kOld = static_cast<std::uint64_t>(std::chrono::nanoseconds(kPatience).count());
  const RankExchangeCell& looked_at = view_.Cell(cell);
  return looked_at.state.load(std::memory_order_acquire) == RankExchangeCellState::kGathers &&
         now_ns - looked_at.created_ns.load(std::memory_order_relaxed) > kOld;
}

}  // namespace ringd
