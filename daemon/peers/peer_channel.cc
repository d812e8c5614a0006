#include "daemon/peers/peer_channel.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace ringd {
namespace {

// A schedule of ten thousand tensors with long names stays below this.
constexpr int kMaxMessageBytes = 32 << 20;
// The job's. How long a connection may be without it is node_connections' business: to gRPC calls
// that are refused are calls.
constexpr int kMaxCallsPerConnection = 1;

template <typename Arguments>
void SetKeepalive(const GrpcPeerNetworkOptions& options, Arguments set) {
  set(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_interval.count()));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_timeout.count()));
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit: a job may be silent for hours
  set(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);        // nor is the other side blamed for its pings
  set(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  // The bandwidth probe would put a ping behind each message; these are small.
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakePeerChannel(const GrpcPeerNetworkOptions& options,
                                               const grpc::ResourceQuota& quota, UniqueFd socket) {
  grpc::ChannelArguments arguments;
  SetKeepalive(options, [&](const char* key, int value) { arguments.SetInt(key, value); });
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetResourceQuota(quota);
  return grpc::CreateCustomInsecureChannelFromFd("ringd", socket.Release(), arguments);
}

void ConfigurePeerServer(const GrpcPeerNetworkOptions& options, const grpc::ResourceQuota& quota,
                         grpc::ServerBuilder& builder) {
  SetKeepalive(options,
               [&](const char* key, int value) { builder.AddChannelArgument(key, value); });
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.SetResourceQuota(quota);
}

}  // namespace ringd
