#include "backends/tcp/tcp_farewells.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/clock.h"

namespace ringd {
namespace {

constexpr std::size_t kTurnBytes = 2 * kMaxPayloadBytes;

}  // namespace

TcpFarewells::~TcpFarewells() { Flush(); }

void TcpFarewells::Add(std::unique_ptr<TcpConnection> connection) {
  if (connections_.size() >= kMostConnections) connections_.pop_front();
  TcpConnection& added = *connections_.emplace_back(std::move(connection));
  added.set_owner(*this);
  added.SayGoodbye();
  if (IsOver(added)) connections_.pop_back();
}

bool TcpFarewells::IsOver(const TcpConnection& connection) noexcept {
  return connection.ended() || (connection.peer_left() && connection.is_flushed());
}

void TcpFarewells::Attend(TcpConnection& connection) noexcept {
  connection.Continue();
  connection.Read(kTurnBytes);
}

void TcpFarewells::OnReady(TcpConnection& connection) noexcept {
  Attend(connection);
  if (!IsOver(connection)) return;
  std::erase_if(connections_, [&](const auto& one) { return one.get() == &connection; });
}

// Nobody polls any more. What has come and is not read when a socket closes makes the kernel drop
// what was written, so it is read.
void TcpFarewells::Flush() noexcept {
  const Clock::time_point deadline = Clock::now() + kFlushPatience;
  for (;;) {
    std::vector<pollfd> waiting;
    for (const auto& connection : connections_) {
      connection->OnEvents(POLLIN | POLLOUT);
      Attend(*connection);
      if (!connection->is_flushed() && !connection->ended()) {
        waiting.push_back({connection->fd(), POLLOUT, 0});
      }
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (waiting.empty() || left.count() <= 0) return;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(left.count()));
  }
}

}  // namespace ringd
