// gRPC over connections between ringds that the door has opened: limits and probes.
#ifndef RINGD_DAEMON_PEERS_PEER_CHANNEL_H_
#define RINGD_DAEMON_PEERS_PEER_CHANNEL_H_

#include <memory>

#include "daemon/peers/grpc_peer_network.h"
#include "proto/base/unique_fd.h"

namespace grpc {
class Channel;
class ResourceQuota;
class ServerBuilder;
}  // namespace grpc

namespace ringd {

// A channel over this connection alone: it ends with it. `socket` is connected and non-blocking.
std::shared_ptr<grpc::Channel> MakePeerChannel(const GrpcPeerNetworkOptions& options,
                                               const grpc::ResourceQuota& quota, UniqueFd socket);

// The same for a server of connections that others have opened to here. It listens nowhere.
void ConfigurePeerServer(const GrpcPeerNetworkOptions& options, const grpc::ResourceQuota& quota,
                         grpc::ServerBuilder& builder);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_PEER_CHANNEL_H_
