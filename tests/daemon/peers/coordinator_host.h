// A gRPC server with a GrpcPeerNetwork behind it, on a port of its own.
#ifndef RINGD_TESTS_DAEMON_PEERS_COORDINATOR_HOST_H_
#define RINGD_TESTS_DAEMON_PEERS_COORDINATOR_HOST_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>

#include "daemon/peers/grpc_peer_network.h"
#include "tests/daemon/peers/recorded_events.h"

namespace ringd {

struct CoordinatorHost {
  // `address`: host:port to listen on; port 0 takes a free one.
  explicit CoordinatorHost(const std::string& address = "127.0.0.1:0",
                           GrpcPeerNetworkOptions options = {})
      : network(options) {
    network.SetEvents(&events);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    network.ConfigureServer(builder);
    server = builder.BuildAndStart();
  }
  ~CoordinatorHost() { Stop(); }

  void Stop() {
    network.Shutdown(Clock::now() + std::chrono::seconds(3));
    if (server != nullptr) server->Shutdown(std::chrono::system_clock::now());
  }

  std::string Target() const { return "127.0.0.1:" + std::to_string(port); }

  RecordedEvents events;
  GrpcPeerNetwork network;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_PEERS_COORDINATOR_HOST_H_
