// The implementation behind tcp_transport.h: this node's communicators and the ringds that they
// reach.
#ifndef RINGD_BACKENDS_TCP_TCP_NODE_H_
#define RINGD_BACKENDS_TCP_TCP_NODE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/collectives/busy_communicators.h"
#include "backends/collectives/early_messages.h"
#include "backends/collectives/wire_communicator.h"
#include "backends/tcp/line_shares.h"
#include "backends/tcp/tcp_farewells.h"
#include "backends/tcp/tcp_line.h"
#include "backends/tcp/tcp_poller.h"
#include "backends/tcp/tcp_remote.h"
#include "backends/tcp/wire_sockets.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

class TcpWire;

// Gives connections to the communicators that they belong to, and drives all of them.
//
// Thread safety: the progress thread only.
// Ownership: see Transport. Owns the remotes; lines, which the wires own, borrow them.
// Invariant: a remote has lines.
class TcpNode final : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options,
                                                           std::unique_ptr<WireSockets> sockets);
  ~TcpNode() override = default;

  absl::string_view name() const noexcept override { return "tcp"; }
  const std::string& LocalAddress() const noexcept override { return sockets_->LocalAddress(); }
  int event_fd() const noexcept override { return poller_.fd(); }
  [[nodiscard]] bool Arm() noexcept override;
  std::size_t Progress() noexcept override;
  bool Lingers() const noexcept override { return !farewells_.empty(); }
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      const CommunicatorSpec& spec) override;

  // For the wires.

  WireSockets& sockets() noexcept { return *sockets_; }
  TcpLine::Means& means() noexcept { return means_; }
  // How many connections for bulk this node opens to another one, both given by their addresses.
  std::uint32_t BulkStreams(absl::string_view own, absl::string_view peer) const;
  TcpRemote& RemoteAt(const std::string& address);
  // The wire has a deadline now.
  void NoteDeadline(TcpWire& wire) { awaiting_dials_.push_back(&wire); }
  // Some line of some wire has failed.
  void NoteFailure() noexcept { some_failed_ = true; }
  // Ends all sends of a wire: no payload of it is read when this returns. Does not block.
  void CloseWire(TcpWire& wire) noexcept;

 private:
  struct End {
    TcpWire* wire = nullptr;
    WireCommunicator* communicator = nullptr;
  };
  // Notes that there was an event.
  struct Bell final : Pollable {
    bool rung = false;
    void OnEvents(std::uint32_t /*events*/) noexcept override { rung = true; }
  };

  // Turns of connections in which they are read before more is sent than answers what came: 4 MiB.
  // Whoever sends more than he reads fills the neighbour's queue and his own: what is read there
  // has left the caches, and one node is done long before the other, for which it waits.
  static constexpr std::size_t kMostTurns = 16;

  TcpNode(std::unique_ptr<WireSockets> sockets, int bulk_streams,
          CongestionControl congestion_control, LineShares* line_shares);
  absl::Status Listen();

  // Handles what has come, all of it or a turn of each connection and kMostTurns in all; returns
  // the amount of work. Where communicators or jobs share the way to a node it is one turn of each:
  // who sends next there is decided in between.
  std::size_t Receive() noexcept;
  bool SharesAWay() const noexcept;
  void TakeSockets() noexcept;
  void ReportFailures() noexcept;
  std::optional<Clock::time_point> Deadline() const noexcept;
  // Does what is overdue.
  void Tick() noexcept;
  bool SetTimer(Clock::time_point when) noexcept;

  const std::unique_ptr<WireSockets> sockets_;
  const int bulk_streams_;         // kAutoStreams: one for each interface
  LineShares* const line_shares_;  // null: no other process sends on its lines
  EarlyMessagePool early_pool_;
  SendPool<TcpSend> send_pool_;
  TcpPoller poller_;
  TcpLine::Means means_;
  UniqueFd timer_;
  Bell timer_bell_;
  Bell sockets_bell_;
  absl::flat_hash_map<std::string, std::unique_ptr<TcpRemote>> remotes_;  // by address
  absl::flat_hash_map<std::uint64_t, End> ends_;                          // by wire id
  BusyCommunicators busy_;
  std::vector<TcpWire*> awaiting_dials_;  // those with deadlines
  bool some_failed_ = false;
  TcpFarewells farewells_;
};

}  // namespace ringd

#endif  // RINGD_BACKENDS_TCP_TCP_NODE_H_
