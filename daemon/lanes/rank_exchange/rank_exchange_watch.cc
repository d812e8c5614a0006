#include "daemon/lanes/rank_exchange/rank_exchange_watch.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "proto/attach/handshake.h"
#include "proto/base/errno_status.h"
#include "proto/base/memfd.h"

namespace ringd {
namespace {

// Who has not moved for so long will not do so soon.
constexpr auto kStandstill = std::chrono::seconds(1);

template <typename Notice>
void Send(Session& session, NoticeKind kind, const Notice& notice, int fd) {
  session.SendMemory(kind, std::as_bytes(std::span(&notice, 1)), fd);
}

}  // namespace

void RankExchangeWatch::Driving::TakeTurn() {
  if (exchange->BecomeDriver()) {
    exchange->Drive(std::chrono::milliseconds(0));
    exchange->StopDriving();
  }
  has_turn = false;
}

RankExchangeWatch::RankExchangeWatch(std::shared_ptr<Driving> driving,
                                     std::uint32_t connection_count, IsolatedExecutor* isolated)
    : driving_(std::move(driving)),
      view_(driving_->exchange->view()),
      connection_count_(connection_count),
      isolated_(isolated) {}

RankExchangeWatch::~RankExchangeWatch() {
  if (isolated_ != nullptr) isolated_->Destroy(std::move(driving_));
}

absl::StatusOr<std::unique_ptr<RankExchangeWatch>> RankExchangeWatch::Create(
    const RankExchangeGeometry& geometry, std::vector<UniqueFd> connections,
    std::span<const std::shared_ptr<Session>> members, IsolatedExecutor* isolated) {
  if (isolated != nullptr && isolated->backlog() > kMostBacklog) {
    return absl::ResourceExhaustedError("too much of what earlier jobs held is still being closed");
  }
  const std::uint64_t bytes =
      RankExchangeView::SegmentBytes(geometry.member_count, geometry.node_count);
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd("ringd-rank-exchange", bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::Map(fd->get(), bytes);
  if (!mapping.ok()) return mapping.status();
  const RankExchangeView view = InitializeRankExchangeSegment(mapping->data(), geometry);
  UniqueFd& wakes = connections[geometry.node_index];
  wakes = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakes.valid()) return ErrnoStatus(errno, "eventfd");

  std::vector<int> handed_out;  // by node
  for (const UniqueFd& connection : connections) handed_out.push_back(connection.get());
  auto exchange = RankExchange::Create(view, kRankExchangeRingd, std::move(connections));
  if (!exchange.ok()) return exchange.status();
  // Nothing fails from here on: what a member has been sent is closed by `isolated`.
  std::uint32_t count = 0;
  for (std::uint32_t m = 0; m < geometry.member_count; ++m) {
    Send(*members[m], NoticeKind::kRankExchange, RankExchangeNotice{bytes, m, 0}, fd->get());
    count = 0;
    for (std::uint32_t node = 0; node < geometry.node_count; ++node) {
      if (handed_out[node] < 0) continue;
      ++count;
      Send(*members[m], NoticeKind::kRankExchangeConnection, RankExchangeConnectionNotice{node, 0},
           handed_out[node]);
    }
  }
  auto driving = std::make_shared<Driving>(*std::move(mapping), *std::move(exchange));
  return std::unique_ptr<RankExchangeWatch>(
      new RankExchangeWatch(std::move(driving), count, isolated));
}

void RankExchangeWatch::Look(Clock::time_point now) {
  // It is called by a timer that may be early by a little.
  if (now - last_look_ < kLookInterval * 3 / 4) return;
  last_look_ = now;
  const RankExchangeControl& control = view_.control();
  if (isolated_ == nullptr) {
    driving_->TakeTurn();
  } else if (!driving_->has_turn.exchange(true)) {
    isolated_->Run([driving = driving_] { driving->TakeTurn(); });
  }
  const std::uint32_t driver = control.driver.load(std::memory_order_relaxed);
  const std::uint64_t turns = control.turns.load(std::memory_order_relaxed);
  if (driver != driver_.who || turns != driver_.turns) driver_ = {driver, turns, now};
  const std::uint32_t lock = control.lock.load(std::memory_order_relaxed);
  if (lock != lock_.who) lock_ = {lock, 0, now};
  if (!broken_since_.has_value() && !driving_->exchange->Usable()) broken_since_ = now;
  // A node that lacks somebody gives up in its time, and then the next above it.
  const auto late = (view_.Depth() + 1) * RankExchange::kPatience;
  late_ = !Waiting(now - late, now).empty();
}

std::uint64_t RankExchangeWatch::MembersAtIt() const noexcept {
  std::uint64_t bits = 0;
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    RankExchangeCell& cell = view_.Cell(i);
    const RankExchangeCellState state = cell.state.load(std::memory_order_acquire);
    if (state != RankExchangeCellState::kGathers && state != RankExchangeCellState::kSent) continue;
    // The lock may be in the hands of one that has been stopped.
    bits |= std::atomic_ref(cell.members).load(std::memory_order_relaxed);
  }
  return bits;
}

std::vector<RankExchangeWait> RankExchangeWatch::Waiting(Clock::time_point before,
                                                         Clock::time_point now) const {
  std::vector<RankExchangeWait> waiting;
  const std::uint64_t at_it = MembersAtIt();
  for (std::uint32_t m = 0; m < view_.member_count(); ++m) {
    if ((at_it >> m & 1) == 0) continue;
    const RankExchangeMember& member = view_.Member(m);
    const std::uint32_t named = member.registration.load(std::memory_order_acquire);
    if (named == 0) continue;
    const auto since_ns = static_cast<std::int64_t>(
        std::min<std::uint64_t>(member.since_ns.load(std::memory_order_relaxed), INT64_MAX));
    const auto since = std::min(now, Clock::time_point(std::chrono::nanoseconds(since_ns)));
    if (since > before) continue;
    waiting.push_back({static_cast<int>(m), named - 1, since});
  }
  return waiting;
}

std::vector<int> RankExchangeWatch::Holders() const {
  std::vector<int> members;
  for (const Holder& holder : {driver_, lock_}) {
    if (holder.who == kRankExchangeNobody || holder.who > view_.member_count()) continue;
    if (last_look_ - holder.since < kStandstill) continue;
    const int member = static_cast<int>(holder.who) - 1;
    if (std::find(members.begin(), members.end(), member) == members.end()) {
      members.push_back(member);
    }
  }
  return members;
}

std::optional<RankExchangeBreak> RankExchangeWatch::Broken(Clock::time_point now) const {
  if (!broken_since_.has_value() || now - *broken_since_ < kStandstill) return std::nullopt;
  return driving_->exchange->WhyBroken();
}

bool RankExchangeWatch::LacksDecision() const noexcept {
  const RankExchangeNodeSet closed = view_.control().closed.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < kRankExchangeCells; ++i) {
    RankExchangeCell& cell = view_.Cell(i);
    if (cell.state.load(std::memory_order_acquire) != RankExchangeCellState::kSent) continue;
    // The lock may be in the hands of one that has been stopped.
    if ((std::atomic_ref(cell.awaits).load(std::memory_order_relaxed) & closed) != 0) return true;
  }
  return false;
}

std::uint64_t RankExchangeWatch::completed() const noexcept {
  return view_.control().completed.load(std::memory_order_relaxed);
}

std::uint64_t RankExchangeWatch::given_up() const noexcept {
  return view_.control().given_up.load(std::memory_order_relaxed);
}

RankExchangeMemberCounters RankExchangeWatch::Counters(int member) const noexcept {
  const RankExchangeMember& counted = view_.Member(static_cast<std::uint32_t>(member));
  return {counted.completed.load(std::memory_order_relaxed),
          counted.bytes.load(std::memory_order_relaxed)};
}

}  // namespace ringd
