// The gRPC services of ringd's Unix socket: thin, each call is one of NodeCalls.
#ifndef RINGD_DAEMON_RPC_SERVICES_H_
#define RINGD_DAEMON_RPC_SERVICES_H_

#include <memory>

#include "daemon/rpc/node_calls.h"
#include "daemon/rpc/user_calls.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace ringd {

// By gRPC's callback interface: a call that waits holds no thread. `node` is borrowed and
// outlives the service; all calls of one service are `caller`'s, and count in `calls`. One too many
// is RESOURCE_EXHAUSTED.

// ringd.v1.Client. Calls without a session token are UNAUTHENTICATED; whether a token is good,
// `node` knows.
std::unique_ptr<grpc::Service> MakeClientService(NodeCalls* node, const Caller& caller,
                                                 std::shared_ptr<UserCalls> calls);

// ringd.v1.Admin.
std::unique_ptr<grpc::Service> MakeAdminService(NodeCalls* node, const Caller& caller,
                                                std::shared_ptr<UserCalls> calls);

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_SERVICES_H_
