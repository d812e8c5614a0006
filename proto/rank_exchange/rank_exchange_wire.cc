// What comes and goes over the connections, and the driver's turns.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "proto/rank_exchange/rank_exchange.h"
#include "proto/rank_exchange/rank_exchange_lock.h"

namespace ringd {

// ---- the wire
// ------------------------------------------------------------------------------------------

RankExchangeBreak RankExchange::Send(std::uint32_t node, RankExchangeMessageKind kind,
                                     const RankExchangeKey& key, const iovec& payload) noexcept {
  RankExchangeMessage header{};
  header.magic = kRankExchangeMessageMagic;
  header.kind = kind;
  header.signature = key.signature;
  header.occurrence = key.occurrence;
  header.payload_bytes = static_cast<std::uint32_t>(payload.iov_len);
  std::array<iovec, 2> parts{{{&header, sizeof(header)}, payload}};
  std::size_t left = sizeof(header) + payload.iov_len;
  Clock::time_point deadline{};
  for (;;) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(connections_[node].get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      left -= static_cast<std::size_t>(sent);
      if (left == 0) return {};
      auto gone = static_cast<std::size_t>(sent);
      for (iovec& part : parts) {
        const std::size_t of_this = std::min(gone, part.iov_len);
        part.iov_base = static_cast<std::byte*>(part.iov_base) + of_this;
        part.iov_len -= of_this;
        gone -= of_this;
      }
    }
    int error = sent < 0 ? errno : EAGAIN;
    if (error == EINTR) continue;
    const Clock::time_point now = Clock::now();
    // What does not fit into the socket, which has room for all cells' messages, is on its way to
    // nobody. ringd has more to do than to wait for that.
    if (deadline == Clock::time_point{}) {
      deadline = self_ == kRankExchangeRingd ? now : now + kSendPatience;
    }
    if (error == EAGAIN && now >= deadline) error = ETIMEDOUT;
    if (error != EAGAIN) {
      // So that the other side does not wait for what could not be sent.
      ::shutdown(connections_[node].get(), SHUT_RDWR);
      return {RankExchangeBreak::Reason::kConnection, static_cast<std::uint8_t>(node),
              static_cast<std::uint16_t>(error)};
    }
    pollfd room{connections_[node].get(), POLLOUT, 0};
    ::poll(&room, 1, 1);
  }
}

RankExchangeBreak RankExchange::SendInput(std::uint32_t to, std::uint32_t cell,
                                          const RankExchangeContribution& last,
                                          bool as_it_lies) noexcept {
  void* const input =
      as_it_lies ? const_cast<void*>(last.source) : view_.NodePayload(cell, view_.node_index());
  return Send(to, RankExchangeMessageKind::kInput, last.key, {input, last.bytes()});
}

void RankExchange::SendTo(RankExchangeNodeSet nodes, RankExchangeMessageKind kind,
                          const RankExchangeKey& key, const iovec& payload) noexcept {
  nodes &= ~view_.control().closed.load(std::memory_order_relaxed);
  // What breaks is dealt with when all have got this message: kStop must not overtake
  // it.
  RankExchangeBreak first;
  while (nodes != 0) {
    const RankExchangeBreak broken = Send(TakeLowest(nodes), kind, key, payload);
    if (first.reason == RankExchangeBreak::Reason::kNone) first = broken;
  }
  if (first.reason != RankExchangeBreak::Reason::kNone) Break(first);
}

void RankExchange::TakeMessages(std::uint32_t node) noexcept {
  RankExchangeInbox& inbox = view_.Inbox(node);
  std::size_t filled = std::min<std::size_t>(inbox.filled, RankExchangeInbox::kBytes);
  std::size_t taken = 0;
  while (filled - taken >= sizeof(RankExchangeMessage)) {
    RankExchangeMessage message{};
    std::memcpy(&message, inbox.data + taken, sizeof(message));
    const bool sensible =
        message.magic == kRankExchangeMessageMagic && message.payload_bytes <= view_.limit_bytes();
    if (sensible && filled - taken < sizeof(message) + message.payload_bytes) break;
    if (!sensible ||
        !OnMessage(node, message, {inbox.data + taken + sizeof(message), message.payload_bytes})) {
      Break({RankExchangeBreak::Reason::kProtocol, static_cast<std::uint8_t>(node), 0});
      taken = filled;
      break;
    }
    taken += sizeof(message) + message.payload_bytes;
  }
  filled -= taken;
  if (filled > 0 && taken > 0) std::memmove(inbox.data, inbox.data + taken, filled);
  inbox.filled = static_cast<std::uint32_t>(filled);
}

bool RankExchange::OnMessage(std::uint32_t node, const RankExchangeMessage& message,
                             std::span<const std::byte> payload) noexcept {
  const RankExchangeKey key{message.signature, message.occurrence};
  switch (message.kind) {
    case RankExchangeMessageKind::kInput:
      return OnInput(node, key, payload);
    case RankExchangeMessageKind::kResult:
      return OnResult(node, key, payload);
    case RankExchangeMessageKind::kGiveUp:
      return OnGiveUp(node, key);
    case RankExchangeMessageKind::kStop:
      return OnStop(node);
  }
  return false;
}

bool RankExchange::OnInput(std::uint32_t node, const RankExchangeKey& key,
                           std::span<const std::byte> payload) noexcept {
  const RankExchangeNodeSet bit = NodeBit(node);
  if ((view_.Children(view_.TreeOf(payload.size())) & bit) == 0) return false;
  std::uint32_t cell = FindCell(key);
  if (!Usable() && cell == kNoCell) {
    // The hub has told all by its kStop.
    if (!view_.is_hub()) SendTo(bit, RankExchangeMessageKind::kGiveUp, key, {});
    return true;
  }
  if (cell == kNoCell) cell = MakeCell(key, payload.size());
  if (cell == kNoCell) {
    // The others' inputs, if they find room, will lack this one.
    SendTo(bit, RankExchangeMessageKind::kGiveUp, key, {});
    return true;
  }
  RankExchangeCell& to = view_.Cell(cell);
  const bool fits = to.bytes == payload.size();
  const RankExchangeCellState state = to.state.load(std::memory_order_relaxed);
  // Of a pair both find that out, each by the other's input.
  const bool decides = state == RankExchangeCellState::kGathers ||
                       (view_.is_pair() && state == RankExchangeCellState::kSent);
  if (!fits && decides) GiveUp(cell);
  if (!fits || state == RankExchangeCellState::kGivenUp) {
    // The decision has crossed this input, or found no room there.
    SendTo(bit, RankExchangeMessageKind::kGiveUp, key, {});
    return true;
  }
  if ((to.awaits & bit) == 0) return false;
  to.awaits &= ~bit;
  // The last one is combined from where it has arrived.
  if (!ForwardIfWhole(cell, node, payload.data()) && !payload.empty()) {
    std::memcpy(view_.NodePayload(cell, node), payload.data(), payload.size());
  }
  return true;
}

bool RankExchange::OnResult(std::uint32_t node, const RankExchangeKey& key,
                            std::span<const std::byte> payload) noexcept {
  const RankExchangeTree tree = view_.TreeOf(payload.size());
  if (view_.is_pair() || view_.is_hub() || node != view_.Parent(tree)) return false;
  const std::uint32_t cell = FindCell(key);
  if (cell == kNoCell) return false;
  RankExchangeCell& to = view_.Cell(cell);
  if (to.state.load(std::memory_order_relaxed) != RankExchangeCellState::kSent ||
      to.bytes != payload.size()) {
    return false;
  }
  if (!payload.empty()) std::memcpy(view_.Result(cell), payload.data(), payload.size());
  to.state.store(RankExchangeCellState::kDone, std::memory_order_release);
  const iovec result{const_cast<std::byte*>(payload.data()), payload.size()};
  SendTo(view_.Children(tree), RankExchangeMessageKind::kResult, key, result);
  Announce(cell, RankExchangeCellState::kDone);
  return true;
}

bool RankExchange::OnGiveUp(std::uint32_t node, const RankExchangeKey& key) noexcept {
  const bool has_parent = !view_.is_hub() || view_.is_pair();
  if (!has_parent || (node != view_.Parent(RankExchangeTree::kFlat) &&
                      node != view_.Parent(RankExchangeTree::kKnomial))) {
    return false;
  }
  std::uint32_t cell = FindCell(key);
  if (cell == kNoCell) {
    // Members that come later have to know, if there is room. Else they hear it when they ask.
    cell = MakeCell(key, 0);
    // Nobody waits there. Who comes first counts it: it may have been here before, and be told
    // again.
    if (cell != kNoCell) {
      view_.Cell(cell).state.store(RankExchangeCellState::kGivenUp, std::memory_order_release);
    }
    return true;
  }
  const RankExchangeCell& given_up = view_.Cell(cell);
  const RankExchangeCellState state = given_up.state.load(std::memory_order_relaxed);
  // Who has sent its input to another one is told by that.
  const bool decides =
      state == RankExchangeCellState::kGathers ||
      (state == RankExchangeCellState::kSent && node == view_.Parent(view_.TreeOf(given_up.bytes)));
  if (!decides) return true;
  if (view_.is_pair()) {
    End(cell, RankExchangeCellState::kGivenUp);
  } else {
    GiveUp(cell);
  }
  return true;
}

bool RankExchange::OnStop(std::uint32_t node) noexcept {
  if (view_.is_hub() ? view_.is_pair() : node != 0) return false;
  Break({RankExchangeBreak::Reason::kStopped, static_cast<std::uint8_t>(node), 0});
  return true;
}

// ---- the driver
// ----------------------------------------------------------------------------------------

bool RankExchange::BecomeDriver() noexcept {
  std::atomic<std::uint32_t>& driver = view_.control().driver;
  std::uint32_t nobody = kRankExchangeNobody;
  // First a look: those who spin must not take the line away from the driver.
  if (driver.load(std::memory_order_relaxed) != nobody ||
      !driver.compare_exchange_strong(nobody, own_name(), std::memory_order_acquire)) {
    return false;
  }
  // Pairs with the fence in End: the role before, the look at one's operation after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

void RankExchange::StopDriving() noexcept {
  view_.control().driver.store(kRankExchangeNobody, std::memory_order_release);
  // Pairs with the fence of who falls asleep: the role before, the looks at cells after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    RankExchangeCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_relaxed) != RankExchangeCellState::kFree) {
      cell.doorbell.Ring();
    }
  }
}

bool RankExchange::Drive(std::chrono::milliseconds most) noexcept {
  view_.control().turns.fetch_add(1, std::memory_order_relaxed);
  if (!Usable() && !MayBeAsked()) {
    if (most.count() > 0) ::poll(nullptr, 0, static_cast<int>(most.count()));
    return false;
  }
  const Heard heard = Receive(most);
  if (!heard.anything && !AnyWork()) return false;
  // Whoever holds it for long has been stopped. What has come stays in the inboxes.
  const RankExchangeLock lock(
      view_.control().lock, own_name(),
      self_ == kRankExchangeRingd ? std::chrono::milliseconds(0) : kLockPatience);
  if (!lock.held()) return heard.anything;
  for (std::uint32_t node = 0; node < view_.node_count(); ++node) TakeMessages(node);
  if (heard.end.reason != RankExchangeBreak::Reason::kNone) Break(heard.end);
  const std::uint64_t now = MonotonicNanos();
  for (std::uint32_t cell = 0; cell < kRankExchangeCells; ++cell) {
    if (IsOverdue(cell, now)) GiveUp(cell);
  }
  ShowAwaited();
  return heard.anything;
}

bool RankExchange::AnyWork() const noexcept {
  for (std::uint32_t node = 0; node < view_.node_count(); ++node) {
    if (view_.Inbox(node).filled >= sizeof(RankExchangeMessage)) return true;
  }
  const std::uint64_t now = MonotonicNanos();
  for (std::uint32_t cell = 0; cell < kRankExchangeCells; ++cell) {
    if (IsOverdue(cell, now)) return true;
  }
  return false;
}

void RankExchange::ShowAwaited() noexcept {
  RankExchangeNodeSet awaited = 0;
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    const RankExchangeCell& cell = view_.Cell(i);
    const RankExchangeCellState state = cell.state.load(std::memory_order_acquire);
    if (state == RankExchangeCellState::kGathers || state == RankExchangeCellState::kSent) {
      awaited |= cell.awaits;
    }
  }
  view_.control().awaited.store(awaited, std::memory_order_relaxed);
}

RankExchangeNodeSet RankExchange::Awaited() const noexcept {
  const RankExchangeControl& control = view_.control();
  return control.awaited.load(std::memory_order_relaxed) & neighbours_ &
         ~control.closed.load(std::memory_order_relaxed);
}

bool RankExchange::MayBeAsked() const noexcept {
  if (Awaited() != 0) return true;
  if (view_.is_hub() || !view_.has_knomial()) return false;
  const RankExchangeNodeSet closed = view_.control().closed.load(std::memory_order_relaxed);
  return (view_.Children(RankExchangeTree::kKnomial) & ~closed) != 0;
}

RankExchange::Heard RankExchange::Receive(std::chrono::milliseconds most) noexcept {
  // Up to so many are asked one by one sooner than by epoll.
  constexpr int kFew = 2;
  Heard heard;
  const bool glances = most.count() == 0;
  if (!epoll_.valid()) {
    ReceiveFrom(0, glances ? MSG_DONTWAIT : 0, heard);
    return heard;
  }
  RankExchangeNodeSet awaited = glances && self_ != kRankExchangeRingd ? Awaited() : 0;
  if (awaited == 0 || std::popcount(awaited) > kFew) {
    ReceiveFromAny(most, heard);
    return heard;
  }
  while (awaited != 0) ReceiveFrom(TakeLowest(awaited), MSG_DONTWAIT, heard);
  return heard;
}

void RankExchange::ReceiveFromAny(std::chrono::milliseconds most, Heard& heard) noexcept {
  std::array<epoll_event, kRankExchangeMostNodes> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(most.count()));
  const RankExchangeNodeSet closed = view_.control().closed.load(std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t node = events[static_cast<std::size_t>(i)].data.u32;
    if ((closed & NodeBit(node)) != 0) {
      // It would be readable for ever.
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connections_[node].get(), nullptr);
    } else if (node != view_.node_index()) {
      ReceiveFrom(node, MSG_DONTWAIT, heard);
    } else {
      std::uint64_t wakes = 0;
      const iovec part{&wakes, sizeof(wakes)};
      // Another process may have taken them meanwhile, and may have cleared O_NONBLOCK, which all
      // share.
      [[maybe_unused]] const ssize_t read =
          ::preadv2(connections_[node].get(), &part, 1, -1, RWF_NOWAIT);
    }
  }
}

void RankExchange::ReceiveFrom(std::uint32_t node, int flags, Heard& heard) noexcept {
  RankExchangeInbox& inbox = view_.Inbox(node);
  const std::size_t filled = std::min<std::size_t>(inbox.filled, RankExchangeInbox::kBytes);
  // There is room: TakeMessages leaves less than one whole message. If it could not get the lock,
  // later.
  if (filled == RankExchangeInbox::kBytes) return;
  const ssize_t received = ::recv(connections_[node].get(), inbox.data + filled,
                                  RankExchangeInbox::kBytes - filled, flags);
  if (received > 0) {
    inbox.filled = static_cast<std::uint32_t>(filled + static_cast<std::size_t>(received));
    heard.anything = true;
    return;
  }
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  heard.end = {RankExchangeBreak::Reason::kConnection, static_cast<std::uint8_t>(node),
               static_cast<std::uint16_t>(received == 0 ? 0 : errno)};
  heard.anything = true;
}

}  // namespace ringd
