#include "daemon/peers/peer_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

// A schedule of ten thousand tensors with long names stays below this.
constexpr int kMaxMessageBytes = 32 << 20;
// Between attempts to reach a coordinator that is not there yet.
constexpr int kMinReconnectMillis = 50;
constexpr int kMaxReconnectMillis = 500;
constexpr int kConnectAttemptMillis = 2000;

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

std::shared_ptr<grpc::Channel> OpenPeerChannel(const GrpcPeerNetworkOptions& options,
                                               const std::string& host_port) {
  grpc::ChannelArguments arguments;
  SetKeepalive(options, [&](const char* key, int value) { arguments.SetInt(key, value); });
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // A connection of its own: no waiting for what another stream's attempts have met.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinReconnectMillis);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMillis);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectAttemptMillis);
  // A channel whose stream has ended lets its connection go.
  arguments.SetInt(GRPC_ARG_CLIENT_IDLE_TIMEOUT_MS, 1000);
  return grpc::CreateCustomChannel(absl::StrCat("dns:///", host_port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

void ConfigurePeerServer(const GrpcPeerNetworkOptions& options, grpc::ServerBuilder& builder) {
  SetKeepalive(options,
               [&](const char* key, int value) { builder.AddChannelArgument(key, value); });
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
}

}  // namespace ringd
