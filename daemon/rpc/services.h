// The gRPC services of ringd's Unix socket: thin, each call is one call of the engine.
#ifndef RINGD_DAEMON_RPC_SERVICES_H_
#define RINGD_DAEMON_RPC_SERVICES_H_

#include <memory>

#include "daemon/engine/engine_control.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace ringd {

// ringd.v1.Client. Calls without a session token are UNAUTHENTICATED; whether a token is good, the
// engine knows. `engine` is borrowed and outlives the service. A Join holds its thread until the job
// is complete.
std::unique_ptr<grpc::Service> MakeClientService(EngineControl* engine);

// ringd.v1.Admin.
std::unique_ptr<grpc::Service> MakeAdminService(EngineControl* engine);

}  // namespace ringd

#endif  // RINGD_DAEMON_RPC_SERVICES_H_
