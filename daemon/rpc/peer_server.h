// The gRPC server for other ringds: the only one that listens on the network.
#ifndef RINGD_DAEMON_RPC_PEER_SERVER_H_
#define RINGD_DAEMON_RPC_PEER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace ringd {

// Thread safety: all methods from any thread.
class PeerServer {
 public:
  // Listens on `address` (host:port, port 0 for any) with the services that `configure` registers, and
  // the standard health service.
  //   kUnavailable: the address can't be listened on; the message says why.
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(
      const std::string& address, const std::function<void(grpc::ServerBuilder&)>& configure);
  ~PeerServer();

  // The port that is listened on.
  std::uint16_t port() const noexcept;

  void SetServing(bool serving);

  // As LocalServer::Shutdown.
  void Shutdown(Clock::time_point deadline);

 private:
  class Impl;
  explicit PeerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_PEER_SERVER_H_
