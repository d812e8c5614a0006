// The way from this node to another one, in one communicator.
#ifndef RINGD_BACKENDS_TCP_TCP_LINE_H_
#define RINGD_BACKENDS_TCP_TCP_LINE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/collectives/message_wire.h"
#include "backends/communicator.h"
#include "backends/congestion_control.h"
#include "backends/tcp/tcp_connection.h"
#include "backends/tcp/tcp_remote.h"
#include "backends/tcp/tcp_send.h"

namespace ringd {

// The connections of a pair of nodes, and the messages that wait for them. Stream 0 is for urgent
// ones, the others for bulk, of which the remote says whose turn it is.
//
// Either side may have dialled, or both: then there are two sets of connections. Each side sends on
// the set that it had first, and receives on all. How many streams a set has is the matter of who
// dialled.
//
// Thread safety: the progress thread only.
// Ownership: owns its connections and what waits; payloads stay their senders'.
// Invariant: once failed or left by the other side, what is sent is dropped.
class TcpLine final : private TcpConnection::Owner {
 public:
  // The communicator's wire.
  class User {
   public:
    // From inside a connection's Read().
    virtual void OnMessage(const MessageHeader& header,
                           std::span<const std::byte> payload) noexcept = 0;
    // failure() has changed. Perhaps from inside Send(): do nothing but note it.
    virtual void OnFailure(const TcpLine& line) noexcept = 0;

   protected:
    ~User() = default;
  };
  // What all lines of a transport share.
  struct Means {
    TcpPoller& poller;
    SendPool<TcpSend>& sends;
    CongestionControl congestion_control;
  };

  static constexpr std::uint32_t kMaxStreams = 64;  // for bulk

  TcpLine(const FrameScope& scope, const LineShare& share, TcpRemote& remote, Means& means,
          User& user);
  TcpLine(const TcpLine&) = delete;
  TcpLine& operator=(const TcpLine&) = delete;
  ~TcpLine();

  // Takes a connection to the other node.
  void Adopt(UniqueFd socket, std::uint32_t stream, bool dialled_here);
  // There is something to send on.
  bool is_open() const noexcept { return in_use_ != nullptr; }

  // As MessageWire.
  bool Send(const MessageHeader& header, std::span<const std::byte> payload, SendPriority priority,
            SendObserver* observer) noexcept;
  void Withdraw(const SendObserver* observer) noexcept;
  NeighbourLine Describe() const;

  // Why it is of no use any more, as TcpConnection::end(). The first cause stays.
  void Fail(const absl::Status& why) noexcept;
  const absl::Status& failure() const noexcept { return failure_; }
  NodeIndex peer() const noexcept { return NodeIndex(scope_.peer); }
  // It has said goodbye.
  bool peer_left() const noexcept { return peer_left_; }
  // Drops everything, without a goodbye. Not from inside Send() or Read().
  void Shut() noexcept;
  // Drops what waits, and hands out the connections: all payloads are free.
  std::vector<std::unique_ptr<TcpConnection>> Close() noexcept;

  // For the remote.
  bool CanBeginBulk() const noexcept { return FindBulkConnection() != nullptr; }
  // Requirement: CanBeginBulk(). May tell observers.
  void BeginBulk(TcpSend& send) noexcept;
  void LimitUnsentBytes(std::uint32_t bytes) noexcept;
  // Of all its connections for bulk together.
  std::chrono::microseconds BulkBusyTime() const noexcept;
  TcpFlow& flow() noexcept { return *flow_; }

 private:
  using Connections = std::vector<std::unique_ptr<TcpConnection>>;

  // What a connection may bring in one turn: others get theirs.
  static constexpr std::size_t kTurnBytes = 2 * kMaxPayloadBytes;

  void OnReady(TcpConnection& connection) noexcept override;
  void OnMessage(const MessageHeader& header,
                 std::span<const std::byte> payload) noexcept override {
    user_.OnMessage(header, payload);
  }
  void OnPeerLeft() noexcept;
  void NoteEnd(const TcpConnection& connection) noexcept;
  static bool IsUsable(const Connections& set) noexcept;
  void UseIfWhole(Connections& set) noexcept;
  TcpConnection* FindBulkConnection() const noexcept;
  // True: done with the payload, its observer is not told.
  bool Begin(TcpConnection& connection, TcpSend& send) noexcept;
  void AdvanceUrgent() noexcept;
  template <typename Predicate>
  void DropWaiting(Predicate predicate) noexcept;
  template <typename TakeBack>
  void TakeBackAll(TakeBack take_back) noexcept;
  void DropAll() noexcept;
  void LeaveRemote() noexcept;

  const FrameScope scope_;
  TcpRemote& remote_;
  Means& means_;
  User& user_;
  TcpFlow* flow_;  // null: has left the remote
  std::array<Connections, 2>
      sets_;  // by who dialled: the other, this side; by stream, null: none yet
  Connections* in_use_ = nullptr;  // for sending
  std::size_t next_bulk_ = 0;
  SendList<TcpSend> urgent_;
  std::set<std::string> interfaces_;  // of its connections
  absl::Status failure_;
  bool peer_left_ = false;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_LINE_H_
