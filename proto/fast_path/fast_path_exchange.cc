#include "proto/fast_path/fast_path_exchange.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "proto/base/errno_status.h"
#include "proto/reduce/combine.h"

namespace ringd {
namespace {

constexpr std::uint32_t kNoCell = UINT32_MAX;

}  // namespace

std::uint64_t FastPathSignature(std::span<const char> description) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : description) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

// Holds the lock, if it could be had.
class FastPathExchange::Guard {
 public:
  Guard(FastPathExchange& exchange, std::chrono::nanoseconds patience) noexcept
      : lock_(exchange.view_.control().lock), held_(Acquire(exchange.own_name(), patience)) {}
  ~Guard() {
    if (held_) lock_.store(kFastPathNobody, std::memory_order_release);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  bool held() const noexcept { return held_; }

 private:
  bool Acquire(std::uint32_t name, std::chrono::nanoseconds patience) noexcept {
    constexpr int kTriesPerClock = 16;
    Clock::time_point end{};
    for (;;) {
      for (int i = 0; i < kTriesPerClock; ++i) {
        std::uint32_t nobody = kFastPathNobody;
        if (lock_.compare_exchange_weak(nobody, name, std::memory_order_acquire,
                                        std::memory_order_relaxed)) {
          return true;
        }
      }
      const Clock::time_point now = Clock::now();
      if (end == Clock::time_point{}) end = now + patience;
      if (now >= end) return false;
      ::sched_yield();
    }
  }

  std::atomic<std::uint32_t>& lock_;
  const bool held_;
};

absl::StatusOr<std::unique_ptr<FastPathExchange>> FastPathExchange::Create(
    FastPathView view, std::uint32_t self, std::vector<UniqueFd> connections) {
  const std::uint32_t expected = view.is_root() ? view.node_count() : 1;
  bool complete = connections.size() == view.node_count();
  for (std::uint32_t node = 0; complete && node < expected; ++node) {
    complete = connections[node].valid();
  }
  if (!complete || !connections[view.node_index()].valid()) {
    return absl::InvalidArgumentError("a connection of the fast path is missing");
  }
  UniqueFd epoll;
  if (view.is_root()) {
    epoll = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
    for (std::uint32_t node = 0; node < view.node_count(); ++node) {
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
  return std::unique_ptr<FastPathExchange>(
      new FastPathExchange(view, self, std::move(connections), std::move(epoll)));
}

FastPathExchange::FastPathExchange(FastPathView view, std::uint32_t self,
                                   std::vector<UniqueFd> connections, UniqueFd epoll)
    : view_(view), self_(self), connections_(std::move(connections)), epoll_(std::move(epoll)) {}

std::uint32_t FastPathExchange::own_name() const noexcept {
  return self_ == kFastPathRingd ? kFastPathRingd : self_ + 1;
}

std::uint64_t FastPathExchange::all_members() const noexcept {
  return ~std::uint64_t{0} >> (kFastPathMostMembers - view_.member_count());
}

bool FastPathExchange::Usable() const noexcept {
  return view_.control().broken.load(std::memory_order_acquire) == 0;
}

FastPathBreak FastPathExchange::WhyBroken() const noexcept {
  return FastPathBreak::FromWord(view_.control().broken.load(std::memory_order_acquire));
}

// ---- what a member does ----------------------------------------------------------------------------

FastPathOutcome FastPathExchange::Contribute(const FastPathContribution& contribution,
                                             std::uint32_t& cell) {
  const std::uint64_t bytes = contribution.element_count * SizeOf(contribution.data_type);
  if (bytes > view_.limit_bytes() || !Usable()) return FastPathOutcome::kGivenUp;
  const Guard guard(*this, kLockPatience);
  // Without the lock nothing has been contributed, so this rank may go the other way.
  if (!guard.held() || !Usable()) return FastPathOutcome::kGivenUp;
  cell = FindCell(contribution.key);
  if (cell == kNoCell) cell = MakeCell(contribution.key, bytes);
  if (cell == kNoCell) return FastPathOutcome::kGivenUp;
  FastPathCell& to = view_.Cell(cell);
  const std::uint64_t own_bit = std::uint64_t{1} << self_;
  if (to.state.load(std::memory_order_relaxed) == FastPathCellState::kGathers &&
      to.bytes != bytes) {
    GiveUp(cell);
  }
  if (to.state.load(std::memory_order_relaxed) != FastPathCellState::kGathers ||
      (to.members & own_bit) != 0) {
    Leave(cell);
    return FastPathOutcome::kGivenUp;
  }
  to.data_type = static_cast<std::uint8_t>(contribution.data_type);
  to.op = static_cast<std::uint8_t>(contribution.op);
  to.members |= own_bit;
  if (to.members != all_members()) {
    if (bytes > 0) std::memcpy(view_.MemberPayload(cell, self_), contribution.source, bytes);
    return FastPathOutcome::kPending;
  }
  CombineMembers(cell, contribution);
  if (view_.is_root()) {
    to.nodes |= 1;
    CompleteIfWhole(cell);
  } else if (Send(0, FastPathMessageKind::kInput, contribution.key,
                  {view_.NodePayload(cell, view_.node_index()), bytes})) {
    to.state.store(FastPathCellState::kSent, std::memory_order_relaxed);
  }
  const FastPathOutcome outcome = Look(cell);
  if (outcome == FastPathOutcome::kGivenUp) Leave(cell);  // it could not be sent
  return outcome;
}

FastPathOutcome FastPathExchange::Look(std::uint32_t cell) const noexcept {
  // Acquire pairs with the release in End: who sees the end sees the result.
  switch (view_.Cell(cell).state.load(std::memory_order_acquire)) {
    case FastPathCellState::kDone:
      return FastPathOutcome::kCompleted;
    case FastPathCellState::kGivenUp:
      return FastPathOutcome::kGivenUp;
    default:
      return FastPathOutcome::kPending;
  }
}

void FastPathExchange::Take(std::uint32_t cell, DataType data_type, void* destination,
                            std::uint64_t element_count, Scaling postscale) noexcept {
  CopyScaled(data_type, destination, view_.Result(cell), element_count, postscale,
             Streaming::kCached);
  Leave(cell);
}

void FastPathExchange::Depart(std::uint32_t cell) noexcept { Leave(cell); }

void FastPathExchange::Leave(std::uint32_t cell) noexcept {
  FastPathCell& from = view_.Cell(cell);
  const std::uint64_t own_bit = std::uint64_t{1} << self_;
  const std::uint64_t departed = from.departed.fetch_or(own_bit, std::memory_order_acq_rel);
  if ((departed | own_bit) == all_members()) {
    from.state.store(FastPathCellState::kFree, std::memory_order_release);
  }
}

void FastPathExchange::Sleep(std::uint32_t cell, std::chrono::nanoseconds most) const noexcept {
  view_.Cell(cell).doorbell.Wait(most, [&] {
    return Look(cell) != FastPathOutcome::kPending ||
           view_.control().driver.load(std::memory_order_relaxed) == kFastPathNobody;
  });
}

// ---- cells ---------------------------------------------------------------------------------------------

std::uint32_t FastPathExchange::FindCell(const FastPathKey& key) const noexcept {
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    const FastPathCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_acquire) != FastPathCellState::kFree &&
        cell.signature == key.signature && cell.occurrence == key.occurrence) {
      return i;
    }
  }
  return kNoCell;
}

std::uint32_t FastPathExchange::MakeCell(const FastPathKey& key, std::size_t bytes) noexcept {
  std::uint32_t found = kNoCell;
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    const FastPathCell& cell = view_.Cell(i);
    const FastPathCellState state = cell.state.load(std::memory_order_acquire);
    if (state == FastPathCellState::kFree) {
      found = i;
      break;
    }
    // Those who wait in it have to see it; for those who have not come it may be forgotten.
    const bool watched = (cell.members & ~cell.departed.load(std::memory_order_acquire)) != 0;
    if (state != FastPathCellState::kGivenUp || watched) continue;
    if (found == kNoCell || cell.created_ns.load(std::memory_order_relaxed) <
                                view_.Cell(found).created_ns.load(std::memory_order_relaxed)) {
      found = i;
    }
  }
  if (found == kNoCell) return kNoCell;
  FastPathCell& cell = view_.Cell(found);
  cell.bytes = static_cast<std::uint32_t>(bytes);
  cell.departed.store(0, std::memory_order_relaxed);
  cell.signature = key.signature;
  cell.occurrence = key.occurrence;
  cell.created_ns.store(MonotonicNanos(), std::memory_order_relaxed);
  cell.members = 0;
  cell.nodes = 0;
  cell.state.store(FastPathCellState::kGathers, std::memory_order_release);
  return found;
}

void FastPathExchange::CombineMembers(std::uint32_t cell,
                                      const FastPathContribution& last) noexcept {
  if (last.element_count == 0) return;
  std::array<const void*, kFastPathMostMembers> sources;
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    sources[m] = m == self_ ? last.source : view_.MemberPayload(cell, m);
  }
  void* const partial = view_.NodePayload(cell, view_.node_index());
  CombineContributions(last.data_type, last.op, last.prescale, nullptr,
                       {sources.data(), view_.member_count()}, {&partial, 1}, last.element_count,
                       {}, Streaming::kCached);
}

void FastPathExchange::CompleteIfWhole(std::uint32_t cell) noexcept {
  FastPathCell& whole = view_.Cell(cell);
  const std::uint32_t all_nodes = (std::uint32_t{1} << view_.node_count()) - 1;
  if (whole.nodes != all_nodes || whole.members != all_members()) return;
  const auto type = static_cast<DataType>(whole.data_type);
  const auto op = static_cast<ReduceOp>(whole.op);
  const std::size_t bytes = std::min(whole.bytes, view_.limit_bytes());
  if (bytes > 0 && IsValid(type)) {
    std::array<const void*, kFastPathMostNodes> sources;
    for (std::uint32_t n = 0; n < view_.node_count(); ++n) sources[n] = view_.NodePayload(cell, n);
    ReduceMany(type, op, {sources.data(), view_.node_count()}, view_.Result(cell),
               bytes / SizeOf(type), Streaming::kCached);
  }
  // From here on it can't be given up, not even if a connection breaks now.
  const FastPathKey key{whole.signature, whole.occurrence};
  whole.state.store(FastPathCellState::kDone, std::memory_order_release);
  SendToAll(FastPathMessageKind::kResult, key, {view_.Result(cell), bytes});
  End(cell, FastPathCellState::kDone);
}

void FastPathExchange::End(std::uint32_t cell, FastPathCellState state) noexcept {
  FastPathControl& control = view_.control();
  std::atomic<std::uint64_t>& count =
      state == FastPathCellState::kDone ? control.completed : control.given_up;
  count.fetch_add(1, std::memory_order_relaxed);
  FastPathCell& ended = view_.Cell(cell);
  // Stored already if the other nodes had to be told first: then all members may have left meanwhile, and the
  // cell is free.
  const FastPathCellState before = ended.state.load(std::memory_order_relaxed);
  if (before == FastPathCellState::kGathers || before == FastPathCellState::kSent) {
    ended.state.store(state, std::memory_order_release);
  }
  ended.doorbell.Ring();
  if (!view_.is_root()) return;
  // The driver may be asleep for messages, and in this operation itself. The fence pairs with the one in
  // BecomeDriver: the end before, the look for a driver after.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t driver = control.driver.load(std::memory_order_relaxed);
  if (driver == kFastPathNobody || driver == kFastPathRingd || driver == own_name()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      ::write(connections_[view_.node_index()].get(), &one, sizeof(one));
}

void FastPathExchange::GiveUp(std::uint32_t cell) noexcept {
  FastPathCell& lost = view_.Cell(cell);
  lost.state.store(FastPathCellState::kGivenUp, std::memory_order_release);
  if (view_.is_root()) {
    SendToAll(FastPathMessageKind::kGiveUp, {lost.signature, lost.occurrence}, {});
  }
  End(cell, FastPathCellState::kGivenUp);
}

void FastPathExchange::GiveUpOld() noexcept {
  const std::uint64_t now = MonotonicNanos();
  constexpr auto kOld = static_cast<std::uint64_t>(std::chrono::nanoseconds(kPatience).count());
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    const FastPathCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_acquire) == FastPathCellState::kGathers &&
        now - cell.created_ns.load(std::memory_order_relaxed) > kOld) {
      GiveUp(i);
    }
  }
}

void FastPathExchange::Break(FastPathBreak why) noexcept {
  std::uint32_t unbroken = 0;
  if (!view_.control().broken.compare_exchange_strong(unbroken, why.ToWord(),
                                                      std::memory_order_acq_rel)) {
    return;
  }
  if (view_.is_root()) SendToAll(FastPathMessageKind::kStop, {}, {});
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    const FastPathCellState state = view_.Cell(i).state.load(std::memory_order_acquire);
    // What the root has not answered before it said stop, it has given up with that word.
    const bool stopped =
        why.reason == FastPathBreak::Reason::kStopped && state == FastPathCellState::kSent;
    if (state == FastPathCellState::kGathers || stopped) End(i, FastPathCellState::kGivenUp);
  }
}

// ---- the wire ------------------------------------------------------------------------------------------

bool FastPathExchange::Send(std::uint32_t node, FastPathMessageKind kind, const FastPathKey& key,
                            std::span<const std::byte> payload) noexcept {
  FastPathMessage header{};
  header.magic = kFastPathMessageMagic;
  header.kind = kind;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.signature = key.signature;
  header.occurrence = key.occurrence;
  std::array<iovec, 2> parts{
      {{&header, sizeof(header)}, {const_cast<std::byte*>(payload.data()), payload.size()}}};
  std::size_t left = sizeof(header) + payload.size();
  Clock::time_point deadline{};
  for (;;) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = ::sendmsg(connections_[node].get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      left -= static_cast<std::size_t>(sent);
      if (left == 0) return true;
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
    if (deadline == Clock::time_point{}) deadline = now + kSendPatience;
    if (error == EAGAIN && now >= deadline) error = ETIMEDOUT;
    if (error != EAGAIN) {
      Break({FastPathBreak::Reason::kConnection, static_cast<std::uint8_t>(node),
             static_cast<std::uint16_t>(error)});
      return false;
    }
    pollfd room{connections_[node].get(), POLLOUT, 0};
    ::poll(&room, 1, 1);
  }
}

void FastPathExchange::SendToAll(FastPathMessageKind kind, const FastPathKey& key,
                                 std::span<const std::byte> payload) noexcept {
  for (std::uint32_t node = 1; node < view_.node_count(); ++node) Send(node, kind, key, payload);
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
  if (view_.is_root()) {
    return message.kind == FastPathMessageKind::kInput && OnInput(node, key, payload);
  }
  switch (message.kind) {
    case FastPathMessageKind::kResult:
      return OnResult(key, payload);
    case FastPathMessageKind::kGiveUp:
      OnGiveUp(key);
      return true;
    case FastPathMessageKind::kStop:
      Break({FastPathBreak::Reason::kStopped, static_cast<std::uint8_t>(node), 0});
      return true;
    default:
      return false;
  }
}

bool FastPathExchange::OnInput(std::uint32_t node, const FastPathKey& key,
                               std::span<const std::byte> payload) noexcept {
  if (!Usable()) return true;  // it has been told so
  std::uint32_t cell = FindCell(key);
  if (cell == kNoCell) cell = MakeCell(key, payload.size());
  if (cell == kNoCell) {
    // The others' inputs, if they find room, will lack this one.
    Send(node, FastPathMessageKind::kGiveUp, key, {});
    return true;
  }
  FastPathCell& to = view_.Cell(cell);
  const FastPathCellState state = to.state.load(std::memory_order_relaxed);
  if (state == FastPathCellState::kGivenUp) return true;  // as it will hear
  const std::uint32_t bit = std::uint32_t{1} << node;
  if (state != FastPathCellState::kGathers || (to.nodes & bit) != 0) return false;
  if (to.bytes != payload.size()) {
    GiveUp(cell);
    return true;
  }
  if (!payload.empty()) {
    std::memcpy(view_.NodePayload(cell, node), payload.data(), payload.size());
  }
  to.nodes |= bit;
  CompleteIfWhole(cell);
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
  const Guard guard(*this, self_ == kFastPathRingd ? std::chrono::milliseconds(0) : kLockPatience);
  if (!guard.held()) return heard.anything;
  for (std::uint32_t node = 0; node < view_.node_count(); ++node) TakeMessages(node);
  if (heard.end.reason != FastPathBreak::Reason::kNone) Break(heard.end);
  GiveUpOld();
  return heard.anything;
}

bool FastPathExchange::AnyWork() const noexcept {
  for (std::uint32_t node = 0; node < view_.node_count(); ++node) {
    if (view_.Inbox(node).filled >= sizeof(FastPathMessage)) return true;
  }
  const std::uint64_t now = MonotonicNanos();
  constexpr auto kOld = static_cast<std::uint64_t>(std::chrono::nanoseconds(kPatience).count());
  for (std::uint32_t i = 0; i < kFastPathCells; ++i) {
    const FastPathCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_relaxed) == FastPathCellState::kGathers &&
        now - cell.created_ns.load(std::memory_order_relaxed) > kOld) {
      return true;
    }
  }
  return false;
}

FastPathExchange::Heard FastPathExchange::Receive(std::chrono::milliseconds most) noexcept {
  Heard heard;
  if (!view_.is_root()) {
    ReceiveFrom(0, most.count() == 0 ? MSG_DONTWAIT : 0, heard);
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
