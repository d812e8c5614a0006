// gRPC on ringd's own socket: through the attach listener into the local server, and turned away.
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "daemon/attach/attach_listener.h"
#include "daemon/rpc/local_server.h"
#include "proto/base/unix_socket.h"
#include "tests/daemon/attach/listener_fixture.h"
#include "tests/daemon/rpc/health.grpc.pb.h"
#include "tests/daemon/rpc/unavailable_node.h"

namespace ringd {
namespace {

grpc::Status CheckHealth(const std::string& path, grpc::health::v1::HealthCheckResponse* response) {
  const auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  return stub->Check(&context, {}, response);
}

TEST_CASE("ringd's socket: a health probe reaches the local server through the listener") {
  UnavailableNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  ListenerFixture fixture;
  AttachCallbacks callbacks = fixture.Callbacks();
  callbacks.on_grpc_connection = [&server](UniqueFd connection, const AdmittedUser& user) {
    return (*server)->AddConnection(std::move(connection), Caller{user.uid, user.is_operator});
  };
  auto listener = AttachListener::Start(fixture.config, std::move(callbacks));
  REQUIRE(listener.ok());
  for (int i = 0; i < 3; ++i) {
    grpc::health::v1::HealthCheckResponse response;
    CHECK(CheckHealth(fixture.config.socket, &response).error_message().empty());
    CHECK(response.status() == grpc::health::v1::HealthCheckResponse::SERVING);
  }
}

TEST_CASE("ringd's socket: a gRPC client of a user who is not admitted learns why, at once") {
  UnavailableNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  const ListenerFixture fixture;
  const auto listener = ListenUnix(fixture.config.socket, 0600);
  REQUIRE(listener.ok());
  std::thread refuser([&] {
    pollfd entry{listener->get(), POLLIN, 0};
    if (::poll(&entry, 1, 20'000) != 1) return;
    (*server)->RefuseConnection(
        UniqueFd(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  });
  const auto channel =
      grpc::CreateChannel("unix:" + fixture.config.socket, grpc::InsecureChannelCredentials());
  // Several calls on one connection, and such as have more to send than is taken.
  std::vector<grpc::Status> answers;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{200'000}}) {
    const auto stub = grpc::health::v1::Health::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(std::string(bytes, 's'));
    grpc::health::v1::HealthCheckResponse response;
    answers.push_back(stub->Check(&context, request, &response));
  }
  refuser.join();
  for (const grpc::Status& status : answers) {
    CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
    CHECK_THAT(status.error_message(), Catch::Contains("allowed_users"));
    CHECK_THAT(status.error_message(), Catch::EndsWith("ringctl run -n RANKS -- COMMAND"));
  }
}

}  // namespace
}  // namespace ringd
