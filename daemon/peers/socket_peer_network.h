// PeerNetwork over connections that came through the door: frames of proto/peers on each.
#ifndef RINGD_DAEMON_PEERS_SOCKET_PEER_NETWORK_H_
#define RINGD_DAEMON_PEERS_SOCKET_PEER_NETWORK_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/peers/control_door.h"
#include "daemon/peers/peer_network.h"
#include "daemon/peers/peer_stream.h"
#include "proto/base/clock.h"

namespace ringd {

struct SocketPeerNetworkOptions {
  PeerStreamLimits stream;
  // What all streams of one user's jobs may hold together: PeerBudget.
  std::size_t max_buffered_bytes = std::size_t{256} << 20;
  // Messages of one stream that have not been dealt with, by their bytes and some more for each:
  // from so much on nothing is read from it.
  std::size_t max_unhandled_bytes = std::size_t{1} << 20;
};

// It listens nowhere: connections come when both sides have proved the job's key. One thread,
// ringd-peers, reads all of them in turns and calls the events; messages are sent by the thread
// that sends them, as far as the connection takes them at once.
//
// Thread safety: as PeerNetwork; Shutdown() once.
// Ownership: owns the streams and connections. Borrows the door, which it starts and stops; of a
//   LocalControlDoor the Door must have been stopped before Shutdown().
class SocketPeerNetwork final : public PeerNetwork {
 public:
  //   What the kernel says.
  static absl::StatusOr<std::unique_ptr<SocketPeerNetwork>> Create(
      ControlDoor* door, const SocketPeerNetworkOptions& options);
  ~SocketPeerNetwork() override;

  // Closes all streams with kCancelled and waits until each has had its last event; cuts what is
  // left at `deadline`. From then on no event is called, and new streams end at once.
  void Shutdown(Clock::time_point deadline);

  void SetEvents(PeerEvents* events) override;
  ExpectationId Expect(ExpectedJob job) override;
  void StopExpecting(ExpectationId job) override;
  StreamId ConnectToCoordinator(CoordinatorAddress coordinator,
                                Clock::time_point deadline) override;
  void Send(StreamId stream, v1::NodeMessage message) override;
  void Send(StreamId stream, v1::CoordinatorMessage message) override;
  void Close(StreamId stream, absl::Status reason) override;

 private:
  class Impl;
  explicit SocketPeerNetwork(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_SOCKET_PEER_NETWORK_H_
