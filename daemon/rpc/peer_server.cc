#include "daemon/rpc/peer_server.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/config/host_port.h"
#include "daemon/rpc/grpc_deadline.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"

namespace ringd {
namespace {

// gRPC only says that it failed: binding once more by hand tells why.
absl::Status ExplainBindFailure(const std::string& address) {
  const std::string what = absl::StrCat("peer_address ", address, " can't be served");
  const absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok())
    return absl::UnavailableError(absl::StrCat(what, ": ", parsed.status().message()));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(), &hints, &list);
  if (error != 0) return absl::UnavailableError(absl::StrCat(what, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  const UniqueFd socket(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (::bind(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      ::listen(socket.get(), 1) != 0) {
    return absl::UnavailableError(ErrnoStatus(errno, what).message());
  }
  return absl::UnavailableError(what);
}

}  // namespace

class PeerServer::Impl {
 public:
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(
    const std::string& address, const std::function<void(grpc::ServerBuilder&)>& configure) {
  grpc::EnableDefaultHealthCheckService(true);
  auto impl = std::make_unique<Impl>();
  grpc::ServerBuilder builder;
  // Otherwise a second ringd would share the port silently and get half of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &impl->port);
  configure(builder);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || impl->port == 0) return ExplainBindFailure(address);
  std::unique_ptr<PeerServer> server(new PeerServer(std::move(impl)));
  server->SetServing(true);
  return server;
}

PeerServer::PeerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PeerServer::~PeerServer() { Shutdown(Clock::now()); }

std::uint16_t PeerServer::port() const noexcept { return static_cast<std::uint16_t>(impl_->port); }

void PeerServer::SetServing(bool serving) {
  impl_->server->GetHealthCheckService()->SetServingStatus(serving);
}

void PeerServer::Shutdown(Clock::time_point deadline) {
  impl_->server->Shutdown(ToGrpcDeadline(deadline));
  impl_->server->Wait();
}

}  // namespace ringd
