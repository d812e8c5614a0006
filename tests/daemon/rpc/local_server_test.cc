#include "daemon/rpc/local_server.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/attach/handshake.h"
#include "proto/base/unix_socket.h"
#include "proto/rpc/admin.grpc.pb.h"
#include "proto/rpc/client.grpc.pb.h"
#include "tests/daemon/rpc/health.grpc.pb.h"

namespace ringd {
namespace {

using std::chrono::seconds;

// An engine that remembers what it was asked; all its Joins wait for each other.
class FakeEngine final : public EngineControl {
 public:
  explicit FakeEngine(int ranks = 1) : ranks_(ranks) {}

  absl::Status Join(absl::string_view token, const v1::JoinRequest& request, v1::JoinReply* reply,
                    const std::function<bool()>& cancelled) override {
    if (token != "good") return absl::UnauthenticatedError("no session has this token");
    ++joined_;
    const Clock::time_point deadline = Clock::now() + seconds(30);
    while (joined_ < ranks_ && Clock::now() < deadline) {
      if (cancelled()) {
        ++gone_;
        return absl::CancelledError("the caller has gone");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (joined_ < ranks_) return absl::DeadlineExceededError("ranks are missing");
    reply->set_communicator(static_cast<std::uint32_t>(request.rank()));
    return absl::OkStatus();
  }
  absl::Status RegisterTensors(absl::string_view, const v1::RegisterTensorsRequest&,
                               v1::RegisterTensorsReply*) override {
    return absl::InvalidArgumentError(std::string(100'000, 'x'));
  }
  absl::Status DescribeMismatch(absl::string_view, const v1::DescribeMismatchRequest&,
                                v1::DescribeMismatchReply*) override {
    return absl::OkStatus();
  }
  absl::Status Leave(absl::string_view) override { return absl::OkStatus(); }
  absl::Status GetStatus(v1::StatusReply* reply) override {
    reply->set_node_name("node-a");
    return absl::OkStatus();
  }
  absl::Status ListJobs(const v1::ListJobsRequest& request, v1::JobsReply*) override {
    return absl::NotFoundError(request.job_id());
  }
  absl::Status ListCommunicators(const v1::ListCommunicatorsRequest&,
                                 v1::CommunicatorsReply*) override {
    return absl::OkStatus();
  }
  absl::Status ListQueues(const v1::ListQueuesRequest&, v1::QueuesReply*) override {
    return absl::OkStatus();
  }
  absl::Status ReportExit(const v1::ReportExitRequest&) override { return absl::OkStatus(); }

  int joined() const { return joined_; }
  int gone() const { return gone_; }

 private:
  const int ranks_;
  std::atomic<int> joined_{0};
  std::atomic<int> gone_{0};
};

std::shared_ptr<grpc::Channel> Connect(LocalServer& server) {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  for (const int fd : {ends->first.get(), ends->second.get()}) {
    REQUIRE(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  }
  server.AddConnection(std::move(ends->first));
  return grpc::CreateInsecureChannelFromFd("ringd", ends->second.Release());
}

void SetDeadline(grpc::ClientContext& context, int in_seconds = 20) {
  context.set_deadline(std::chrono::system_clock::now() + seconds(in_seconds));
}

grpc::Status CallJoin(const std::shared_ptr<grpc::Channel>& channel, const char* token,
                      v1::JoinReply* reply, int rank = 0, int deadline = 20) {
  const auto stub = v1::Client::NewStub(channel);
  grpc::ClientContext context;
  SetDeadline(context, deadline);
  if (token != nullptr) context.AddMetadata(kSessionTokenKey, token);
  v1::JoinRequest request;
  request.set_rank(rank);
  return stub->Join(&context, request, reply);
}

TEST_CASE("LocalServer: answers Admin calls, and hands the engine's errors on") {
  FakeEngine engine;
  auto server = LocalServer::Start(&engine, 4);
  REQUIRE(server.ok());
  const auto stub = v1::Admin::NewStub(Connect(**server));
  {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::StatusReply reply;
    CHECK(stub->GetStatus(&context, {}, &reply).ok());
    CHECK(reply.node_name() == "node-a");
  }
  grpc::ClientContext context;
  SetDeadline(context);
  v1::ListJobsRequest request;
  request.set_job_id("nowhere");
  v1::JobsReply reply;
  const grpc::Status status = stub->ListJobs(&context, request, &reply);
  CHECK(status.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(status.error_message() == "nowhere");
}

TEST_CASE("LocalServer: a Client call without a token, or with a wrong one, is unauthenticated") {
  FakeEngine engine;
  auto server = LocalServer::Start(&engine, 4);
  REQUIRE(server.ok());
  const auto channel = Connect(**server);
  v1::JoinReply reply;
  CHECK(CallJoin(channel, nullptr, &reply).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(CallJoin(channel, "bad", &reply).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(CallJoin(channel, "good", &reply).ok());
}

TEST_CASE("LocalServer: an error text of any length arrives, cut") {
  FakeEngine engine;
  auto server = LocalServer::Start(&engine, 4);
  REQUIRE(server.ok());
  const auto stub = v1::Client::NewStub(Connect(**server));
  grpc::ClientContext context;
  SetDeadline(context);
  context.AddMetadata(kSessionTokenKey, "good");
  v1::RegisterTensorsReply reply;
  const grpc::Status status = stub->RegisterTensors(&context, {}, &reply);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(status.error_message().size() == 2048);
}

TEST_CASE("LocalServer: 64 ranks join at once, while Admin is still answered") {
  constexpr int kRanks = 64;
  FakeEngine engine(kRanks + 1);
  auto server = LocalServer::Start(&engine, kRanks + 1);
  REQUIRE(server.ok());
  std::vector<std::thread> ranks;
  std::atomic<int> succeeded{0};
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int rank = 0; rank <= kRanks; ++rank) channels.push_back(Connect(**server));
  const auto join = [&](int rank) {
    v1::JoinReply reply;
    if (CallJoin(channels[static_cast<std::size_t>(rank)], "good", &reply, rank).ok()) {
      ++succeeded;
    }
  };
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(join, rank);
  const Clock::time_point deadline = Clock::now() + seconds(20);
  while (engine.joined() < kRanks && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(engine.joined() == kRanks);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::StatusReply reply;
  CHECK(v1::Admin::NewStub(Connect(**server))->GetStatus(&context, {}, &reply).ok());
  ranks.emplace_back(join, kRanks);
  for (std::thread& rank : ranks) rank.join();
  CHECK(succeeded == kRanks + 1);
}

TEST_CASE("LocalServer: a Join whose caller has gone is told so") {
  FakeEngine engine(2);
  auto server = LocalServer::Start(&engine, 4);
  REQUIRE(server.ok());
  v1::JoinReply reply;
  CHECK(CallJoin(Connect(**server), "good", &reply, 0, 1).error_code() ==
        grpc::StatusCode::DEADLINE_EXCEEDED);
  const Clock::time_point deadline = Clock::now() + seconds(10);
  while (engine.gone() == 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(engine.gone() == 1);
}

TEST_CASE("LocalServer: the health service says serving, and not serving while draining") {
  FakeEngine engine;
  auto server = LocalServer::Start(&engine, 4);
  REQUIRE(server.ok());
  const auto stub = grpc::health::v1::Health::NewStub(Connect(**server));
  const auto check = [&](const std::string& service) {
    grpc::ClientContext context;
    SetDeadline(context);
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    CHECK(stub->Check(&context, request, &response).ok());
    return response.status();
  };
  using Response = grpc::health::v1::HealthCheckResponse;
  for (const char* service : {"", "ringd.v1.Client", "ringd.v1.Admin"}) {
    (*server)->SetServing(true);
    CHECK(check(service) == Response::SERVING);
    (*server)->SetServing(false);
    CHECK(check(service) == Response::NOT_SERVING);
  }
}

// Asks the reflection service, whose messages the library keeps to itself, in bytes.
std::string AskReflection(std::shared_ptr<grpc::Channel> channel, const std::string& request) {
  grpc::GenericStub stub(std::move(channel));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  SetDeadline(context);
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  REQUIRE(next());
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  REQUIRE(next());
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  REQUIRE(next());
  call->WritesDone(nullptr);
  REQUIRE(next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  REQUIRE(next());
  CHECK(status.ok());
  grpc::Slice bytes;
  REQUIRE(response.DumpToSingleSlice(&bytes).ok());
  return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
}

TEST_CASE("LocalServer: reflection lists the services") {
  FakeEngine engine;
  auto server = LocalServer::Start(&engine, 4);
  REQUIRE(server.ok());
  // ServerReflectionRequest{list_services: ""}: field 7, a string of length 0.
  const std::string reply = AskReflection(Connect(**server), std::string("\x3a\x00", 2));
  for (const char* name : {"ringd.v1.Client", "ringd.v1.Admin", "grpc.health.v1.Health"}) {
    CHECK_THAT(reply, Catch::Contains(name));
  }
}

}  // namespace
}  // namespace ringd
