#include "backends/tcp/tcp_remote.h"

#include "backends/socket_options.h"
#include "backends/tcp/tcp_line.h"

namespace ringd {

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

TcpLine* TcpRemote::FindNext() noexcept {
  if (waits_for_ != nullptr) {
    if (!waits_for_->CanBeginBulk()) return nullptr;
    waits_for_ = nullptr;
  }
  if (queue_.empty()) return nullptr;
  TcpLine* const line = queue_.Front().line;
  if (line->CanBeginBulk()) return line;
  WaitFor(line);
  return nullptr;
}

void TcpRemote::WaitFor(TcpLine* line) noexcept {
  waits_for_ = line;
  if (is_shared()) waits_since_ = Clock::now();
}

std::size_t TcpRemote::Advance() noexcept {
  std::size_t begun = 0;
  while (TcpLine* const line = FindNext()) {
    ++begun;
    line->BeginBulk(queue_.Pop());
    if (is_shared() && !line->CanBeginBulk()) WaitFor(line);
  }
  return begun;
}

bool TcpRemote::CanAdvance() noexcept {
  if (waits_for_ != nullptr && !waits_for_->CanBeginBulk()) return false;
  return !queue_.empty() && queue_.Front().line->CanBeginBulk();
}

std::optional<Clock::time_point> TcpRemote::deadline() const noexcept {
  if (waits_for_ == nullptr || !is_shared()) return std::nullopt;
  return waits_since_ + kPatience;
}

void TcpRemote::Tick(Clock::time_point now) noexcept {
  const auto limit = deadline();
  if (!limit.has_value() || now < *limit || waits_for_->CanBeginBulk()) return;
  queue_.SetAside(waits_for_->flow());
  waits_for_ = nullptr;
}

}  // namespace ringd
