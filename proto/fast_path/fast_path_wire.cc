// What comes and goes over the connections, and the driver's turns.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "proto/fast_path/fast_path_exchange.h"
#include "proto/fast_path/fast_path_lock.h"

namespace ringd {

// ---- the wire ------------------------------------------------------------------------------------------

FastPathBreak FastPathExchange::Send(std::uint32_t node, FastPathMessageKind kind,
                                     const FastPathKey& key,
                                     std::span<const iovec> payload) noexcept {
  FastPathMessage header{};
  header.magic = kFastPathMessageMagic;
  header.kind = kind;
  header.signature = key.signature;
  header.occurrence = key.occurrence;
  std::array<iovec, 1 + kFastPathMostStretches> parts;
  std::size_t part_count = 0;
  parts[part_count++] = {&header, sizeof(header)};
  std::size_t left = sizeof(header);
  for (const iovec& part : payload) {
    parts[part_count++] = part;
    left += part.iov_len;
  }
  header.payload_bytes = static_cast<std::uint32_t>(left - sizeof(header));
  Clock::time_point deadline{};
  for (;;) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = part_count;
    const ssize_t sent = ::sendmsg(connections_[node].get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      left -= static_cast<std::size_t>(sent);
      if (left == 0) return {};
      auto gone = static_cast<std::size_t>(sent);
      for (iovec& part : std::span(parts).first(part_count)) {
        const std::size_t of_this = std::min(gone, part.iov_len);
        part.iov_base = static_cast<std::byte*>(part.iov_base) + of_this;
        part.iov_len -= of_this;
        gone -= of_this;
      }
    }
    int error = sent < 0 ? errno : EAGAIN;
    if (error == EINTR) continue;
    const Clock::time_point now = Clock::now();
    // What does not fit into the socket, which has room for all cells' messages, is on its way to nobody. ringd has
    // more to do than to wait for that.
    if (deadline == Clock::time_point{}) {
      deadline = self_ == kFastPathRingd ? now : now + kSendPatience;
    }
    if (error == EAGAIN && now >= deadline) error = ETIMEDOUT;
    if (error != EAGAIN) {
      // So that the other side does not wait for what could not be sent.
      ::shutdown(connections_[node].get(), SHUT_RDWR);
      return {FastPathBreak::Reason::kConnection, static_cast<std::uint8_t>(node),
              static_cast<std::uint16_t>(error)};
    }
    pollfd room{connections_[node].get(), POLLOUT, 0};
    ::poll(&room, 1, 1);
  }
}

FastPathBreak FastPathExchange::SendInput(std::uint32_t cell, const FastPathContribution& last,
                                          bool as_it_lies) noexcept {
  if (!as_it_lies) {
    const iovec combined{view_.NodePayload(cell, view_.node_index()), last.bytes()};
    return Send(view_.other(), FastPathMessageKind::kInput, last.key, {&combined, 1});
  }
  std::array<iovec, kFastPathMostStretches> stretches;
  for (std::size_t i = 0; i < last.sources.size(); ++i) {
    stretches[i] = {const_cast<void*>(last.sources[i].data),
                    last.sources[i].element_count * SizeOf(last.data_type)};
  }
  return Send(view_.other(), FastPathMessageKind::kInput, last.key,
              std::span(stretches).first(last.sources.size()));
}

void FastPathExchange::SendToAll(FastPathMessageKind kind, const FastPathKey& key,
                                 std::span<const iovec> payload) noexcept {
  // What breaks is dealt with when all have got this message: the word to stop must not overtake it.
  FastPathBreak first;
  for (std::uint32_t node = 1; node < view_.node_count(); ++node) {
    const FastPathBreak broken = Send(node, kind, key, payload);
    if (first.reason == FastPathBreak::Reason::kNone) first = broken;
  }
  if (first.reason != FastPathBreak::Reason::kNone) Break(first);
}

void FastPathExchange::SendGiveUp(std::uint32_t node, const FastPathKey& key) noexcept {
  const FastPathBreak broken = Send(node, FastPathMessageKind::kGiveUp, key, {});
  if (broken.reason != FastPathBreak::Reason::kNone) Break(broken);
}

void FastPathExchange::TakeMessages(std::uint32_t node) noexcept {
  FastPathInbox& inbox = view_.Inbox(node);
  std::size_t filled = std::min<std::size_t>(inbox.filled, FastPathInbox::kBytes);
  std::size_t taken = 0;
  while (filled - taken >= sizeof(FastPathMessage)) {
    FastPathMessage message{};
    std::memcpy(&message, inbox.data + taken, sizeof(message));
    const bool sensible =
        message.magic == kFastPathMessageMagic && message.payload_bytes <= view_.limit_bytes();
    if (sensible && filled - taken < sizeof(message) + message.payload_bytes) break;
    if (!sensible ||
        !OnMessage(node, message, {inbox.data + taken + sizeof(message), message.payload_bytes})) {
      Break({FastPathBreak::Reason::kProtocol, static_cast<std::uint8_t>(node), 0});
      taken = filled;
      break;
    }
    taken += sizeof(message) + message.payload_bytes;
  }
  filled -= taken;
  if (filled > 0 && taken > 0) std::memmove(inbox.data, inbox.data + taken, filled);
  inbox.filled = static_cast<std::uint32_t>(filled);
}

bool FastPathExchange::OnMessage(std::uint32_t node, const FastPathMessage& message,
                                 std::span<const std::byte> payload) noexcept {
  const FastPathKey key{message.signature, message.occurrence};
  switch (message.kind) {
    case FastPathMessageKind::kInput:
      return view_.combines() && OnInput(node, key, payload);
    case FastPathMessageKind::kResult:
      return !view_.combines() && OnResult(key, payload);
    case FastPathMessageKind::kGiveUp:
      if (!view_.sends_input()) return false;
      OnGiveUp(key);
      return true;
    case FastPathMessageKind::kStop:
      if (view_.is_root()) return false;
      Break({FastPathBreak::Reason::kStopped, static_cast<std::uint8_t>(node), 0});
      return true;
  }
  return false;
}

bool FastPathExchange::OnInput(std::uint32_t node, const FastPathKey& key,
                               std::span<const std::byte> payload) noexcept {
  if (!Usable()) return true;  // it has been told so
  std::uint32_t cell = FindCell(key);
  if (cell == kNoCell) cell = MakeCell(key, payload.size());
  if (cell == kNoCell) {
    // The others' inputs, if they find room, will lack this one.
    SendGiveUp(node, key);
    return true;
  }
  FastPathCell& to = view_.Cell(cell);
  const FastPathCellState state = to.state.load(std::memory_order_relaxed);
  if (state == FastPathCellState::kGivenUp) {
    // A root has said so, or will, to all. Of a pair this may be because the other has said it, and then brought its
    // input all the same.
    if (view_.is_pair()) SendGiveUp(node, key);
    return true;
  }
  const std::uint32_t bit = std::uint32_t{1} << node;
  if (state == FastPathCellState::kDone || (to.nodes & bit) != 0) return false;
  if (to.bytes != payload.size()) {
    GiveUp(cell);
    return true;
  }
  to.nodes |= bit;
  // The last one is combined from where it has arrived.
  if (!CompleteIfWhole(cell, node, payload.data()) && !payload.empty()) {
    std::memcpy(view_.NodePayload(cell, node), payload.data(), payload.size());
  }
  return true;
}

bool FastPathExchange::OnResult(const FastPathKey& key,
                                std::span<const std::byte> payload) noexcept {
  const std::uint32_t cell = FindCell(key);
  if (cell == kNoCell) return false;
  FastPathCell& to = view_.Cell(cell);
  if (to.state.load(std::memory_order_relaxed) != FastPathCellState::kSent ||
      to.bytes != payload.size()) {
    return false;
  }
  if (!payload.empty()) std::memcpy(view_.Result(cell), payload.data(), payload.size());
  End(cell, FastPathCellState::kDone);
  return true;
}

void FastPathExchange::OnGiveUp(const FastPathKey& key) noexcept {
  std::uint32_t cell = FindCell(key);
  // Members that come later have to know.
  if (cell == kNoCell) cell = MakeCell(key, 0);
  if (cell == kNoCell) return;
  const FastPathCellState state = view_.Cell(cell).state.load(std::memory_order_relaxed);
  if (state == FastPathCellState::kGathers || state == FastPathCellState::kSent) {
    End(cell, FastPathCellState::kGivenUp);
  }
}

// ---- the driver ----------------------------------------------------------------------------------------

bool FastPathExchange::BecomeDriver() noexcept {
  std::atomic<std::uint32_t>& driver = view_.control().driver;
  std::uint32_t nobody = kFastPathNobody;
  // First a look: those who spin must not take the line away from the driver.
  if (driver.load(std::memory_order_relaxed) != nobody ||
      !driver.compare_exchange_strong(nobody, own_name(), std::memory_order_acquire)) {
    return false;
  }
  // Pairs with the fence in End: the role before, the look at one's operation after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

void FastPathExchange::StopDriving() noexcept {
  view_.control().driver.store(kFastPathNobody, std::memory_order_release);
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    FastPathCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_relaxed) != FastPathCellState::kFree) {
      cell.doorbell.Ring();
    }
  }
}

bool FastPathExchange::Drive(std::chrono::milliseconds most) noexcept {
  view_.control().turns.fetch_add(1, std::memory_order_relaxed);
  if (!Usable()) {
    if (most.count() > 0) ::poll(nullptr, 0, static_cast<int>(most.count()));
    return false;
  }
  const Heard heard = Receive(most);
  if (!heard.anything && !AnyWork()) return false;
  // Whoever holds it for long has been stopped. What has come stays in the inboxes.
  const FastPathLock lock(view_.control().lock, own_name(),
                          self_ == kFastPathRingd ? std::chrono::milliseconds(0) : kLockPatience);
  if (!lock.held()) return heard.anything;
  for (std::uint32_t node = 0; node < view_.node_count(); ++node) TakeMessages(node);
  if (heard.end.reason != FastPathBreak::Reason::kNone) Break(heard.end);
  const std::uint64_t now = MonotonicNanos();
  for (std::uint32_t cell = 0; cell < kFastPathCells; ++cell) {
    if (IsOverdue(cell, now)) GiveUp(cell);
  }
  return heard.anything;
}

bool FastPathExchange::AnyWork() const noexcept {
  for (std::uint32_t node = 0; node < view_.node_count(); ++node) {
    if (view_.Inbox(node).filled >= sizeof(FastPathMessage)) return true;
  }
  const std::uint64_t now = MonotonicNanos();
  for (std::uint32_t cell = 0; cell < kFastPathCells; ++cell) {
    if (IsOverdue(cell, now)) return true;
  }
  return false;
}

FastPathExchange::Heard FastPathExchange::Receive(std::chrono::milliseconds most) noexcept {
  Heard heard;
  const bool glances = most.count() == 0;
  // Nothing else can come, or nothing else is looked for: no need of epoll.
  if (!view_.combines() || (view_.is_pair() && glances)) {
    ReceiveFrom(view_.other(), glances ? MSG_DONTWAIT : 0, heard);
    return heard;
  }
  std::array<epoll_event, kFastPathMostNodes> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(most.count()));
  for (int i = 0; i < count; ++i) {
    const std::uint32_t node = events[static_cast<std::size_t>(i)].data.u32;
    if (node != view_.node_index()) {
      ReceiveFrom(node, MSG_DONTWAIT, heard);
      continue;
    }
    std::uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t read = ::read(connections_[node].get(), &wakes, sizeof(wakes));
  }
  return heard;
}

void FastPathExchange::ReceiveFrom(std::uint32_t node, int flags, Heard& heard) noexcept {
  FastPathInbox& inbox = view_.Inbox(node);
  const std::size_t filled = std::min<std::size_t>(inbox.filled, FastPathInbox::kBytes);
  // There is room: TakeMessages leaves less than one whole message. If it could not get the lock, later.
  if (filled == FastPathInbox::kBytes) return;
  const ssize_t received =
      ::recv(connections_[node].get(), inbox.data + filled, FastPathInbox::kBytes - filled, flags);
  if (received > 0) {
    inbox.filled = static_cast<std::uint32_t>(filled + static_cast<std::size_t>(received));
    heard.anything = true;
    return;
  }
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  heard.end = {FastPathBreak::Reason::kConnection, static_cast<std::uint8_t>(node),
               static_cast<std::uint16_t>(received == 0 ? 0 : errno)};
  heard.anything = true;
}

}  // namespace ringd
