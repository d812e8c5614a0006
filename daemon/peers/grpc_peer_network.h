// PeerNetwork over gRPC: one bidirectional call of ringd.v1.Peer per stream, each over a connection
// that came through the door.
#ifndef RINGD_DAEMON_PEERS_GRPC_PEER_NETWORK_H_
#define RINGD_DAEMON_PEERS_GRPC_PEER_NETWORK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "daemon/door/door.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"

namespace ringd {

struct GrpcPeerNetworkOptions {
  std::uint32_t door_flags = 0;  // kDoorHasClusterKey

  // What may wait in one stream's outgoing queue before the stream is given up.
  std::size_t max_outgoing_bytes = std::size_t{64} << 20;
  // What gRPC may hold of messages of one user's jobs before it slows them down.
  std::size_t max_buffered_bytes = std::size_t{256} << 20;

  // A connection on which nothing was received for the interval is probed; without an answer within
  // the timeout it is lost. Their sum is the time in which a silent loss is noticed.
  std::chrono::milliseconds keepalive_interval{1000};
  std::chrono::milliseconds keepalive_timeout{2500};

  // How long a closed stream may take to send what it holds before it is cut.
  std::chrono::milliseconds close_grace{2000};

  // How long a connection to here may be without a call: before its call, and after it.
  std::chrono::milliseconds call_patience{5000};
  std::chrono::milliseconds hang_up_patience{3000};
};

// gRPC listens nowhere: connections are handed to it when both sides have proved the job's key.
// Those of one user's jobs have a server of their own, so that they can't take the memory of
// others'.
//
// Thread safety: as PeerNetwork; Shutdown() once.
// Ownership: owns the streams and connections. Borrows the door, which must have been stopped
//   before this goes.
class GrpcPeerNetwork final : public PeerNetwork {
 public:
  explicit GrpcPeerNetwork(Door* door, GrpcPeerNetworkOptions options = {});
  ~GrpcPeerNetwork() override;

  // Closes all streams with kCancelled and waits until each has had its last event; cuts what is
  // left at `deadline`. From then on no event is called, and new streams end at once.
  void Shutdown(Clock::time_point deadline);

  void SetEvents(PeerEvents* events) override;
  ExpectationId Expect(ExpectedJob job) override;
  void StopExpecting(ExpectationId job) override;
  void RefuseNewJobs() override;
  StreamId ConnectToCoordinator(CoordinatorAddress coordinator,
                                Clock::time_point deadline) override;
  void Send(StreamId stream, v1::NodeMessage message) override;
  void Send(StreamId stream, v1::CoordinatorMessage message) override;
  void Close(StreamId stream, absl::Status reason) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_GRPC_PEER_NETWORK_H_
