#include "daemon/rpc/refusing_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "absl/status/status.h"
#include "daemon/rpc/grpc_deadline.h"

namespace ringd {
namespace {

constexpr int kMaxConnectionMillis = 3000;
constexpr int kMaxConnectionGraceMillis = 1000;
constexpr int kMaxCallsPerConnection = 16;

// Ends its call at once.
class RefusingReactor final : public grpc::ServerGenericBidiReactor {
 public:
  RefusingReactor() {
    Finish(
        grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                     "this user is not admitted by this ringd; its settings allowed_users and "
                     "allowed_groups would admit them. (Or the system's user database has not said "
                     "in time which groups they are in: ringd's log tells.) Without it: "
                     "ringctl run -n 1 -- COMMAND"));
  }
  void OnDone() override { delete this; }
};

class RefusingService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new RefusingReactor;  // deletes itself when gRPC is done with it
  }
};

}  // namespace

class RefusingServer::Impl {
 public:
  RefusingService service;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<RefusingServer>> RefusingServer::Start() {
  auto impl = std::make_unique<Impl>();
  // For servers built from now on: this one's health is nobody's business.
  grpc::EnableDefaultHealthCheckService(false);
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&impl->service);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kMaxConnectionMillis);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, kMaxConnectionGraceMillis);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("the refusing server did not start");
  return std::unique_ptr<RefusingServer>(new RefusingServer(std::move(impl)));
}

RefusingServer::RefusingServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RefusingServer::~RefusingServer() { Shutdown(Clock::now()); }

void RefusingServer::AddConnection(UniqueFd socket) {
  grpc::AddInsecureChannelFromFd(impl_->server.get(), socket.Release());
}

void RefusingServer::Shutdown(Clock::time_point deadline) {
  impl_->server->Shutdown(ToGrpcDeadline(deadline));
  impl_->server->Wait();
}

}  // namespace ringd
