// How the connections between ringds are set up: limits, probes, patience.
#ifndef RINGD_DAEMON_PEERS_PEER_CHANNEL_H_
#define RINGD_DAEMON_PEERS_PEER_CHANNEL_H_

#include <memory>
#include <string>

#include "daemon/peers/grpc_peer_network.h"

namespace grpc {
class Channel;
class ServerBuilder;
}  // namespace grpc

namespace ringd {

// A new channel to the ringd at `host_port`, with a connection of its own, tried again until it stands.
std::shared_ptr<grpc::Channel> OpenPeerChannel(const GrpcPeerNetworkOptions& options,
                                               const std::string& host_port);

// The same for the connections that others open to here.
void ConfigurePeerServer(const GrpcPeerNetworkOptions& options, grpc::ServerBuilder& builder);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_CHANNEL_H_
