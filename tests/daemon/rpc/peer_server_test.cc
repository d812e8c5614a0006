#include "daemon/rpc/peer_server.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "proto/rpc/peer.grpc.pb.h"
#include "tests/daemon/rpc/health.grpc.pb.h"

namespace ringd {
namespace {

// A Peer service that implements nothing.
absl::StatusOr<std::unique_ptr<PeerServer>> StartAt(const std::string& address) {
  static v1::Peer::Service service;
  return PeerServer::Start(address,
                           [](grpc::ServerBuilder& builder) { builder.RegisterService(&service); });
}

TEST_CASE("PeerServer: port 0 means any, and health is answered there") {
  auto server = StartAt("127.0.0.1:0");
  REQUIRE(server.ok());
  REQUIRE((*server)->port() != 0);
  const auto stub = grpc::health::v1::Health::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string((*server)->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  grpc::health::v1::HealthCheckResponse response;
  CHECK(stub->Check(&context, {}, &response).ok());
  CHECK(response.status() == grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_CASE("PeerServer: an address that is taken is an error that says so") {
  auto first = StartAt("127.0.0.1:0");
  REQUIRE(first.ok());
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = StartAt(address);
  CHECK(second.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(second.status().message()),
             Catch::Contains(address) && Catch::Contains("Address already in use"));
}

TEST_CASE("PeerServer: an address of another machine is an error that says so") {
  const auto server = StartAt("192.0.2.1:0");
  CHECK(server.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(server.status().message()), Catch::Contains("Cannot assign"));
}

}  // namespace
}  // namespace ringd
