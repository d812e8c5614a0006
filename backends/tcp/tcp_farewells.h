// Connections of communicators that have closed here.
#ifndef RINGD_BACKENDS_TCP_TCP_FAREWELLS_H_
#define RINGD_BACKENDS_TCP_TCP_FAREWELLS_H_

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <span>

#include "backends/tcp/tcp_connection.h"

namespace ringd {

// Keeps each connection until the other side has closed its communicator, too: to that side the end
// of a connection is the loss of a node, which this one is not. Meanwhile the rest of what was
// being written and the goodbye go out, and what comes in is dropped.
//
// Thread safety: the progress thread only.
// Ownership: of the connections. When it goes they close, and where the other side still has its
//   communicator, that hears of a loss: this ringd has gone.
// Invariant: no more than kMostConnections; the oldest give way.
class TcpFarewells final : private TcpConnection::Owner {
 public:
  // A job may end all its communicators at once, each with a few connections to each of two
  // neighbours.
  static constexpr std::size_t kMostConnections = 4096;

  TcpFarewells() = default;
  TcpFarewells(const TcpFarewells&) = delete;
  TcpFarewells& operator=(const TcpFarewells&) = delete;
  ~TcpFarewells();

  // Requirement: TakeBack() was called.
  void Add(std::unique_ptr<TcpConnection> connection);
  bool empty() const noexcept { return connections_.empty(); }

 private:
  // How long the last bytes may take to leave when the transport goes.
  static constexpr std::chrono::milliseconds kFlushPatience{250};

  void OnReady(TcpConnection& connection) noexcept override;
  void OnMessage(const MessageHeader&, std::span<const std::byte>) noexcept override {}
  static bool IsOver(const TcpConnection& connection) noexcept;
  // Writes what there is room for, and drops what has come.
  static void Attend(TcpConnection& connection) noexcept;
  void Flush() noexcept;

  std::deque<std::unique_ptr<TcpConnection>> connections_;  // the oldest first
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_FAREWELLS_H_
