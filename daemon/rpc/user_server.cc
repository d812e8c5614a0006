#include "daemon/rpc/user_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/rpc/grpc_deadline.h"
#include "daemon/rpc/services.h"
#include "proto/rpc/admin.grpc.pb.h"
#include "proto/rpc/client.grpc.pb.h"

namespace ringd {
namespace {

// A trainer makes one call at a time; nobody needs more.
constexpr int kMaxCallsPerConnection = 16;
// Our library's messages are below 64 KiB; this has room for tens of thousands of short
// descriptions.
constexpr int kMaxRequestBytes = 4 << 20;
// What gRPC may hold of one user's messages before it slows them down.
constexpr std::size_t kMaxBufferedBytes = std::size_t{256} << 20;

}  // namespace

class UserServer::Impl {
 public:
  Impl(NodeCalls* node, const Caller& caller, const std::shared_ptr<UserCalls>& calls)
      : client_service(MakeClientService(node, caller, calls)),
        admin_service(MakeAdminService(node, caller, calls)) {}

  // The server borrows the services and goes first.
  std::unique_ptr<grpc::Service> client_service;
  std::unique_ptr<grpc::Service> admin_service;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<UserServer>> UserServer::Start(NodeCalls* node, const Caller& caller,
                                                              std::shared_ptr<UserCalls> calls) {
  // gRPC's own health service is of the callback kind, too.
  grpc::EnableDefaultHealthCheckService(true);
  auto impl = std::make_unique<Impl>(node, caller, calls);
  grpc::ServerBuilder builder;
  builder.RegisterService(impl->client_service.get());
  builder.RegisterService(impl->admin_service.get());
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  grpc::ResourceQuota quota(absl::StrCat("uid ", caller.uid));
  quota.Resize(kMaxBufferedBytes);
  builder.SetResourceQuota(quota);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("the local gRPC server did not start");
  return std::unique_ptr<UserServer>(new UserServer(std::move(impl)));
}

UserServer::UserServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

UserServer::~UserServer() { Shutdown(Clock::now()); }

std::shared_ptr<const void> UserServer::AddConnection(UniqueFd socket) {
  grpc::AddInsecureChannelFromFd(impl_->server.get(), socket.Release());
  return connections_;
}

void UserServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = impl_->server->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(v1::Client::service_full_name(), serving);
  health->SetServingStatus(v1::Admin::service_full_name(), serving);
}

void UserServer::Shutdown(Clock::time_point deadline) {
  impl_->server->Shutdown(ToGrpcDeadline(deadline));
  impl_->server->Wait();
}

}  // namespace ringd
