#include "daemon/rpc/local_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "absl/status/status.h"
#include "daemon/rpc/grpc_deadline.h"
#include "daemon/rpc/refusing_server.h"
#include "daemon/rpc/services.h"
#include "proto/rpc/admin.grpc.pb.h"
#include "proto/rpc/client.grpc.pb.h"

namespace ringd {
namespace {

// For everything but waiting Joins.
constexpr int kOtherThreads = 32;
// A trainer makes one call at a time; nobody needs more, and each may hold a thread.
constexpr int kMaxCallsPerConnection = 16;
// Room for the registration of tens of thousands of tensors at once.
constexpr int kMaxRequestBytes = 16 << 20;

}  // namespace

class LocalServer::Impl {
 public:
  explicit Impl(EngineControl* engine)
      : client_service(MakeClientService(engine)), admin_service(MakeAdminService(engine)) {}

  // The server borrows the services and goes first.
  std::unique_ptr<grpc::Service> client_service;
  std::unique_ptr<grpc::Service> admin_service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<RefusingServer> refusing;
};

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(EngineControl* engine,
                                                                std::uint64_t max_joins) {
  absl::StatusOr<std::unique_ptr<RefusingServer>> refusing = RefusingServer::Start();
  if (!refusing.ok()) return refusing.status();
  // Both switch on a plugin of every server that is built later.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  auto impl = std::make_unique<Impl>(engine);
  impl->refusing = *std::move(refusing);
  grpc::ServerBuilder builder;
  builder.RegisterService(impl->client_service.get());
  builder.RegisterService(impl->admin_service.get());
  builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection);
  grpc::ResourceQuota quota("local");
  quota.SetMaxThreads(static_cast<int>(max_joins) + kOtherThreads);
  builder.SetResourceQuota(quota);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("the local gRPC server did not start");
  std::unique_ptr<LocalServer> server(new LocalServer(std::move(impl)));
  server->SetServing(true);
  return server;
}

LocalServer::LocalServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LocalServer::~LocalServer() { Shutdown(Clock::now()); }

void LocalServer::AddConnection(UniqueFd socket) {
  grpc::AddInsecureChannelFromFd(impl_->server.get(), socket.Release());
}

void LocalServer::RefuseConnection(UniqueFd socket) {
  impl_->refusing->AddConnection(std::move(socket));
}

void LocalServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = impl_->server->GetHealthCheckService();
  health->SetServingStatus(serving);
  health->SetServingStatus(v1::Client::service_full_name(), serving);
  health->SetServingStatus(v1::Admin::service_full_name(), serving);
}

void LocalServer::Shutdown(Clock::time_point deadline) {
  impl_->refusing->Shutdown(deadline);
  impl_->server->Shutdown(ToGrpcDeadline(deadline));
  impl_->server->Wait();
}

}  // namespace ringd
