// PeerNetwork over gRPC: one bidirectional call of ringd.v1.Peer per stream.
#ifndef RINGD_DAEMON_PEERS_GRPC_PEER_NETWORK_H_
#define RINGD_DAEMON_PEERS_GRPC_PEER_NETWORK_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "daemon/peers/peer_network.h"
#include "proto/base/clock.h"

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace ringd {

struct GrpcPeerNetworkOptions {
  // What may wait in one stream's outgoing queue before the stream is given up.
  std::size_t max_outgoing_bytes = std::size_t{64} << 20;

  // A connection on which nothing was received for the interval is probed; without an answer within
  // the timeout it is lost. Their sum is the time in which a silent loss is noticed.
  std::chrono::milliseconds keepalive_interval{1000};
  std::chrono::milliseconds keepalive_timeout{2500};

  // How long a closed stream may take to send what it holds before it is cut.
  std::chrono::milliseconds close_grace{2000};
};

// Thread safety: as PeerNetwork; ConfigureServer() and Shutdown() once each.
// Ownership: owns the streams and, through them, the client connections. The server that serves the
//   incoming streams is the caller's; it must be shut down after Shutdown() and before destruction.
class GrpcPeerNetwork final : public PeerNetwork {
 public:
  explicit GrpcPeerNetwork(GrpcPeerNetworkOptions options = {});
  ~GrpcPeerNetwork() override;

  // Registers ringd.v1.Peer with the builder and sets its keepalive and message limits. The service
  // is borrowed by the server built from it.
  void ConfigureServer(grpc::ServerBuilder& builder);

  // Closes all streams with kCancelled and waits until each has had its last event; cuts what is left
  // at `deadline`. From then on no event is called, and new streams end at once.
  void Shutdown(Clock::time_point deadline);

  void SetEvents(PeerEvents* events) override;
  StreamId ConnectToCoordinator(const std::string& host_port, Clock::time_point deadline) override;
  void Send(StreamId stream, v1::NodeMessage message) override;
  void Send(StreamId stream, v1::CoordinatorMessage message) override;
  void Close(StreamId stream, absl::Status reason) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_GRPC_PEER_NETWORK_H_
