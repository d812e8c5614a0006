#include "backends/tcp/tcp_remote.h"

#include "backends/socket_options.h"
#include "backends/tcp/tcp_line.h"

namespace ringd {

TcpRemote::TcpRemote(LineTurn* turn) {
  if (turn != nullptr) gate_.emplace(*turn, *static_cast<const LineGate::Connections*>(this));
}

TcpFlow& TcpRemote::Join(TcpLine& line, const LineShare& share) {
  TcpFlow& flow = *queue_.AddFlow(share);
  queue_.SetAside(flow);
  lines_.push_back(&line);
  if (lines_.size() == 2) LimitUnsentBytes();  // it is shared now
  // Now there is somebody who waits with it.
  if (waits_for_ != nullptr) waits_since_ = Clock::now();
  return flow;
}

void TcpRemote::Leave(TcpLine& line, TcpFlow& flow) noexcept {
  if (waits_for_ == &line) waits_for_ = nullptr;
  std::erase(lines_, &line);
  queue_.RemoveFlow(&flow);
  if (lines_.size() == 1) LimitUnsentBytes();  // it is not shared any more
}

std::uint32_t TcpRemote::unsent_bytes() const noexcept {
  return is_shared() ? kSharedUnsentBytes : kUnsentBytes;
}

void TcpRemote::LimitUnsentBytes() noexcept {
  for (TcpLine* const line : lines_) line->LimitUnsentBytes(unsent_bytes());
}

bool TcpRemote::IsFree() noexcept { return !is_shared() && !NoticeOthers(); }

bool TcpRemote::NoticeOthers() noexcept {
  if (!gate_.has_value() || !gate_->OthersWant()) return false;
  if (gate_->is_contended()) return true;
  gate_->NoteContention();
  LimitUnsentBytes();
  return true;
}

bool TcpRemote::IsOwnTurn() noexcept {
  if (!gate_.has_value()) return true;
  if (!NoticeOthers() && !gate_->is_gated()) return true;
  return gate_->MayBegin(Clock::now());
}

TcpLine* TcpRemote::FindNext() noexcept {
  if (waits_for_ != nullptr) {
    if (!waits_for_->CanBeginBulk()) return nullptr;
    waits_for_ = nullptr;
  }
  if (queue_.empty()) return nullptr;
  TcpLine* const line = queue_.Front().line;
  if (line->CanBeginBulk()) return IsOwnTurn() ? line : nullptr;
  WaitFor(line);
  return nullptr;
}

void TcpRemote::WaitFor(TcpLine* line) noexcept {
  waits_for_ = line;
  if (has_several_lines()) waits_since_ = Clock::now();
}

std::size_t TcpRemote::Advance() noexcept {
  std::size_t begun = 0;
  if (gate_.has_value() && !queue_.empty()) gate_->SetWants(true);
  while (TcpLine* const line = FindNext()) {
    ++begun;
    TcpSend& send = queue_.Pop();
    if (gate_.has_value()) gate_->Charge(send.line_bytes());
    line->BeginBulk(send);
    if (is_shared() && !line->CanBeginBulk()) WaitFor(line);
  }
  // A frame that its socket has taken is the kernel's.
  if (gate_.has_value()) gate_->SetWants(!queue_.empty() || waits_for_ != nullptr);
  return begun;
}

bool TcpRemote::CanAdvance() noexcept {
  if (waits_for_ != nullptr && !waits_for_->CanBeginBulk()) return false;
  if (gate_.has_value() && gate_->is_gated()) return false;
  return !queue_.empty() && queue_.Front().line->CanBeginBulk();
}

std::chrono::microseconds TcpRemote::BusyTime() const noexcept {
  std::chrono::microseconds sum{0};
  for (const TcpLine* const line : lines_) sum += line->BulkBusyTime();
  return sum;
}

std::optional<Clock::time_point> TcpRemote::patience_end() const noexcept {
  if (waits_for_ == nullptr || !has_several_lines()) return std::nullopt;
  return waits_since_ + kPatience;
}

std::optional<Clock::time_point> TcpRemote::deadline() const noexcept {
  std::optional<Clock::time_point> earliest = patience_end();
  const auto consider = [&earliest](std::optional<Clock::time_point> other) {
    if (other && (!earliest || *other < *earliest)) earliest = other;
  };
  if (gate_.has_value()) {
    consider(gate_->deadline());
    // While a socket has no room there is no use in looking whose turn it is.
    if (waits_for_ == nullptr) consider(gate_->look_at());
  }
  return earliest;
}

void TcpRemote::Tick(Clock::time_point now) noexcept {
  if (gate_.has_value() && gate_->Tick(now) && !is_shared()) LimitUnsentBytes();
  const auto limit = patience_end();
  if (!limit.has_value() || now < *limit || waits_for_->CanBeginBulk()) return;
  queue_.SetAside(waits_for_->flow());
  waits_for_ = nullptr;
}

}  // namespace ringd
