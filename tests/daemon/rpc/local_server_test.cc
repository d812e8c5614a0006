#include "daemon/rpc/local_server.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/attach/handshake.h"
#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"
#include "proto/rpc/admin.grpc.pb.h"
#include "proto/rpc/client.grpc.pb.h"
#include "tests/daemon/rpc/health.grpc.pb.h"
#include "tests/daemon/rpc/unavailable_node.h"

namespace ringd {
namespace {

using std::chrono::seconds;

// A ringd that remembers what it was asked; all its Joins wait for each other.
class FakeNode final : public UnavailableNode {
 public:
  explicit FakeNode(int ranks = 1) : ranks_(ranks) {}

  std::function<void()> Join(const Caller&, absl::string_view token, const v1::JoinRequest& request,
                             Answer<v1::JoinReply> answer) override {
    if (token != "good") {
      answer(absl::UnauthenticatedError("no session has this token"), {});
      return [] {};
    }
    std::map<int, Answer<v1::JoinReply>> complete;
    const int rank = request.rank();
    {
      MutexLock lock(mutex_);
      ++joined_;
      waiting_.emplace(rank, std::move(answer));
      if (joined_ >= ranks_) complete.swap(waiting_);
    }
    for (const auto& [joined, done] : complete) {
      v1::JoinReply reply;
      reply.set_communicator(static_cast<std::uint32_t>(joined));
      done(absl::OkStatus(), reply);
    }
    return [this, rank] {
      Answer<v1::JoinReply> gone;
      {
        MutexLock lock(mutex_);
        const auto found = waiting_.find(rank);
        if (found == waiting_.end()) return;
        gone = std::move(found->second);
        waiting_.erase(found);
        ++gone_;
      }
      gone(absl::CancelledError("the caller has gone"), {});
    };
  }
  void RegisterTensors(const Caller&, absl::string_view, const v1::RegisterTensorsRequest&,
                       Answer<v1::RegisterTensorsReply> answer) override {
    answer(absl::InvalidArgumentError(std::string(100'000, 'x')), {});
  }
  void GetStatus(const Caller& caller, Answer<v1::StatusReply> answer) override {
    v1::StatusReply reply;
    reply.set_node_name("node-a");
    reply.set_sessions(caller.uid);
    answer(absl::OkStatus(), std::move(reply));
  }
  void ListJobs(const Caller&, const v1::ListJobsRequest& request,
                Answer<v1::JobsReply> answer) override {
    answer(absl::NotFoundError(request.job_id()), {});
  }

  int joined() const { return joined_; }
  int gone() const { return gone_; }

 private:
  const int ranks_;
  Mutex mutex_;
  std::map<int, Answer<v1::JoinReply>> waiting_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::atomic<int> joined_{0};
  std::atomic<int> gone_{0};
};

constexpr uid_t kAlice = 1001;
constexpr uid_t kBob = 1002;

std::shared_ptr<grpc::Channel> Connect(LocalServer& server, uid_t uid = kAlice,
                                       std::shared_ptr<const void>* served = nullptr) {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  for (const int fd : {ends->first.get(), ends->second.get()}) {
    REQUIRE(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  }
  const auto kept = server.AddConnection(std::move(ends->first), Caller{uid});
  REQUIRE(kept != nullptr);
  if (served != nullptr) *served = kept;
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

int ThreadCount() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "Threads:") {
      int count = 0;
      status >> count;
      return count;
    }
  }
  return 0;
}

TEST_CASE("LocalServer: answers Admin calls, and hands ringd's errors on") {
  FakeNode node;
  auto server = LocalServer::Start(&node);
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
  FakeNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  const auto channel = Connect(**server);
  v1::JoinReply reply;
  CHECK(CallJoin(channel, nullptr, &reply).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(CallJoin(channel, "bad", &reply).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(CallJoin(channel, "good", &reply).ok());
}

TEST_CASE("LocalServer: an error text of any length arrives, cut") {
  FakeNode node;
  auto server = LocalServer::Start(&node);
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
  FakeNode node(kRanks + 1);
  auto server = LocalServer::Start(&node);
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
  const int threads = ThreadCount();
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(join, rank);
  const Clock::time_point deadline = Clock::now() + seconds(20);
  while (node.joined() < kRanks && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(node.joined() == kRanks);
  // The callers' own, and a few of gRPC's that come and go: none waits with them in the server.
  CHECK(ThreadCount() <= threads + kRanks + kRanks / 2);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::StatusReply reply;
  CHECK(v1::Admin::NewStub(Connect(**server))->GetStatus(&context, {}, &reply).ok());
  ranks.emplace_back(join, kRanks);
  for (std::thread& rank : ranks) rank.join();
  CHECK(succeeded == kRanks + 1);
}

TEST_CASE("LocalServer: a Join whose caller has gone is told so") {
  FakeNode node(2);
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  v1::JoinReply reply;
  CHECK(CallJoin(Connect(**server), "good", &reply, 0, 1).error_code() ==
        grpc::StatusCode::DEADLINE_EXCEEDED);
  const Clock::time_point deadline = Clock::now() + seconds(10);
  while (node.gone() == 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(node.gone() == 1);
}

TEST_CASE("LocalServer: the health service says serving, and not serving while draining") {
  FakeNode node;
  auto server = LocalServer::Start(&node);
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

// A health watch, read as far as its first word.
struct Watch {
  std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
  std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>> reader;
};

TEST_CASE("LocalServer: 400 open streams of one user take no thread, and hinder nobody") {
  constexpr int kConnections = 25;
  constexpr int kStreams = 16;
  FakeNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  const auto ask_status = [&](uid_t uid) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::StatusReply reply;
    CHECK(v1::Admin::NewStub(Connect(**server, uid))->GetStatus(&context, {}, &reply).ok());
    return reply.sessions();
  };
  CHECK(ask_status(kAlice) == kAlice);  // gRPC has begun whatever threads it wants
  const int threads = ThreadCount();
  REQUIRE(threads > 0);
  std::vector<Watch> watches;
  for (int c = 0; c < kConnections; ++c) {
    const auto stub = grpc::health::v1::Health::NewStub(Connect(**server));
    for (int i = 0; i < kStreams; ++i) {
      Watch& watch = watches.emplace_back();
      SetDeadline(*watch.context, 60);
      watch.reader = stub->Watch(watch.context.get(), {});
      grpc::health::v1::HealthCheckResponse response;
      REQUIRE(watch.reader->Read(&response));
      CHECK(response.status() == grpc::health::v1::HealthCheckResponse::SERVING);
    }
  }
  // gRPC's timers and executors come and go, whatever is called.
  CHECK(ThreadCount() <= threads + kConnections * kStreams / 8);
  CHECK(ask_status(kBob) == kBob);
  CHECK(ask_status(kAlice) == kAlice);
  v1::JoinReply reply;
  CHECK(CallJoin(Connect(**server, kBob), "good", &reply).ok());
  for (const Watch& watch : watches) watch.context->TryCancel();
}

TEST_CASE("LocalServer: a 17th call on one connection waits until one of 16 has ended") {
  FakeNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  const auto stub = grpc::health::v1::Health::NewStub(Connect(**server));
  std::vector<Watch> watches(17);
  grpc::health::v1::HealthCheckResponse response;
  for (Watch& watch : watches) {
    const bool last = &watch == &watches.back();
    SetDeadline(*watch.context, last ? 1 : 60);
    watch.reader = stub->Watch(watch.context.get(), {});
    CHECK(watch.reader->Read(&response) == !last);
  }
  CHECK(watches.back().reader->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  watches.front().context->TryCancel();
  Watch next;
  SetDeadline(*next.context);
  next.reader = stub->Watch(next.context.get(), {});
  CHECK(next.reader->Read(&response));
  for (const Watch& watch : watches) watch.context->TryCancel();
  next.context->TryCancel();
}

TEST_CASE("LocalServer: ringd hears whose connection a call came by") {
  FakeNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  for (const uid_t uid : {kAlice, kBob, uid_t{0}, kAlice}) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::StatusReply reply;
    CHECK(v1::Admin::NewStub(Connect(**server, uid))->GetStatus(&context, {}, &reply).ok());
    CHECK(reply.sessions() == uid);
  }
}

TEST_CASE("LocalServer: many users come and go; those that are connected stay connected") {
  FakeNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  std::shared_ptr<const void> kept;
  const auto first = v1::Admin::NewStub(Connect(**server, kAlice, &kept));
  const auto ask = [](v1::Admin::Stub& stub) {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::StatusReply reply;
    CHECK(stub.GetStatus(&context, {}, &reply).ok());
    return reply.sessions();
  };
  for (uid_t uid = 2000; uid < 2000 + 3 * LocalServer::kKeptServers; ++uid) {
    const auto stub = v1::Admin::NewStub(Connect(**server, uid));
    CHECK(ask(*stub) == uid);
  }
  CHECK(ask(*first) == kAlice);
}

}  // namespace
}  // namespace ringd
