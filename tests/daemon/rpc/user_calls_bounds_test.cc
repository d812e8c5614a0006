// Calls that are never answered, replies that are never read: what they keep from others.
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/rpc/local_server.h"
#include "proto/attach/handshake.h"
#include "proto/base/mutex.h"
#include "proto/base/unix_socket.h"
#include "proto/rpc/admin.grpc.pb.h"
#include "proto/rpc/client.grpc.pb.h"
#include "tests/daemon/rpc/unavailable_node.h"

namespace ringd {
namespace {

using std::chrono::seconds;

// Keeps the calls that make communicators, and answers none of them.
class SilentNode final : public UnavailableNode {
 public:
  void CreateCommunicator(const Caller&, absl::string_view, const v1::CreateCommunicatorRequest&,
                          Answer<v1::CreateCommunicatorReply> answer) override {
    const MutexLock lock(mutex_);
    kept_.push_back(std::move(answer));
    changed_.NotifyAll();
  }
  void GetStatus(const Caller&, Answer<v1::StatusReply> answer) override {
    v1::StatusReply reply;
    reply.set_node_name(std::string(1000, 'n'));
    answer(absl::OkStatus(), std::move(reply));
  }
  bool AwaitCalls(std::size_t count) {
    const Clock::time_point deadline = Clock::now() + seconds(30);
    MutexLock lock(mutex_);
    while (kept_.size() < count && changed_.WaitUntil(mutex_, deadline)) {
    }
    return kept_.size() >= count;
  }
  void AnswerAll() {
    std::vector<Answer<v1::CreateCommunicatorReply>> kept;
    {
      const MutexLock lock(mutex_);
      kept.swap(kept_);
    }
    for (const auto& answer : kept) answer(absl::OkStatus(), {});
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<Answer<v1::CreateCommunicatorReply>> kept_ ABSL_GUARDED_BY(mutex_);
};

// A connection as the attach listener hands it over; `served` is let go when it ends.
std::shared_ptr<grpc::Channel> Connect(LocalServer& server, const Caller& caller,
                                       std::shared_ptr<const void>* served = nullptr) {
  auto ends = UnixSocketPair();
  REQUIRE(ends.ok());
  for (const int fd : {ends->first.get(), ends->second.get()}) {
    REQUIRE(::fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  }
  auto kept = server.AddConnection(std::move(ends->first), caller);
  REQUIRE(kept != nullptr);
  if (served != nullptr) *served = std::move(kept);
  return grpc::CreateInsecureChannelFromFd("ringd", ends->second.Release());
}

// A call that nobody answers, until it is given up.
class SilentCall {
 public:
  explicit SilentCall(const std::shared_ptr<grpc::Channel>& channel,
                      v1::CreateCommunicatorRequest request = {})
      : stub_(v1::Client::NewStub(channel)), request_(std::move(request)) {
    context_.AddMetadata(kSessionTokenKey, "token");
    context_.set_deadline(std::chrono::system_clock::now() + seconds(100));
    done_ = std::async(std::launch::async,
                       [this] { return stub_->CreateCommunicator(&context_, request_, &reply_); });
  }
  grpc::Status GiveUp() {
    context_.TryCancel();
    return done_.get();
  }
  grpc::Status Await() { return done_.get(); }

 private:
  std::unique_ptr<v1::Client::Stub> stub_;
  const v1::CreateCommunicatorRequest request_;
  grpc::ClientContext context_;
  v1::CreateCommunicatorReply reply_;
  std::future<grpc::Status> done_;
};

template <typename Call>
grpc::Status Ask(Call call) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(30));
  return call(&context);
}

grpc::Status Ping(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Client::NewStub(channel);
  v1::PingReply reply;
  return Ask([&](grpc::ClientContext* context) { return stub->Ping(context, {}, &reply); });
}

grpc::Status Status(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::Admin::NewStub(channel);
  v1::StatusReply reply;
  return Ask([&](grpc::ClientContext* context) { return stub->GetStatus(context, {}, &reply); });
}

TEST_CASE(
    "LocalServer: calls of one user beyond his bound are refused, pings too, and no other's") {
  SilentNode node;
  auto server = LocalServer::Start(&node, {.calls = 3});
  REQUIRE(server.ok());
  const auto channel = Connect(**server, {1001});
  std::vector<std::unique_ptr<SilentCall>> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(std::make_unique<SilentCall>(channel));
  REQUIRE(node.AwaitCalls(3));
  // An operator has another server than others have, and the same user's calls count together.
  for (const auto& other : {channel, Connect(**server, {1001}), Connect(**server, {1001, true})}) {
    const grpc::Status refused = Ping(other);
    CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(refused.error_message() ==
          "3 calls of this user wait for an answer, as many as one user may have");
  }
  CHECK(Ping(Connect(**server, {1002})).ok());
  // One that was given up counts until ringd has done with it.
  CHECK(calls[0]->GiveUp().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(Ping(channel).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  node.AnswerAll();
  for (std::size_t i = 1; i < calls.size(); ++i) CHECK(calls[i]->Await().ok());
  // gRPC is done with them a moment later.
  bool served = false;
  const auto end = Clock::now() + seconds(30);
  while (!served && Clock::now() < end) served = Ping(channel).ok();
  CHECK(served);
}

TEST_CASE("LocalServer: requests count as what they are in memory, also fields that nobody knows") {
  SilentNode node;
  auto server = LocalServer::Start(&node, {.request_bytes = 1 << 20});
  REQUIRE(server.ok());
  const auto channel = Connect(**server, {1001});
  v1::CreateCommunicatorRequest request;
  std::string unknown;
  constexpr int kFields = 20'000;
  for (int i = 0; i < kFields; ++i) unknown += std::string("\xfa\x7f\0", 3);  // field 2047: ""
  REQUIRE(request.ParseFromString(unknown));
  REQUIRE(unknown.size() < 100'000);
  SilentCall first(channel, request);
  REQUIRE(node.AwaitCalls(1));
  SilentCall second(channel, request);
  const grpc::Status refused = second.Await();
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(refused.error_message(), Catch::Matchers::Contains("take more than 1 MiB"));
  node.AnswerAll();
  CHECK(first.Await().ok());
}

TEST_CASE("LocalServer: a reply that is longer than the bound comes if it is the only one") {
  SilentNode node;
  auto server = LocalServer::Start(&node, {.reply_bytes = 500});
  REQUIRE(server.ok());
  const auto channel = Connect(**server, {1001});
  CHECK(Status(channel).ok());
}

TEST_CASE("LocalServer: a call that ringd does not answer keeps nobody from connecting") {
  SilentNode node;
  auto server = LocalServer::Start(&node);
  REQUIRE(server.ok());
  {
    std::shared_ptr<const void> served;
    SilentCall call(Connect(**server, {1001}, &served));
    REQUIRE(node.AwaitCalls(1));
    CHECK(call.GiveUp().error_code() == grpc::StatusCode::CANCELLED);
  }
  // Servers of users without connections are dropped.
  auto others = std::async(std::launch::async, [&] {
    bool all = true;
    for (uid_t uid = 2000; uid < 2000 + 2 * LocalServer::kKeptServers; ++uid) {
      all = Ping(Connect(**server, {uid})).ok() && all;
    }
    return all;
  });
  const bool in_time = others.wait_for(seconds(60)) == std::future_status::ready;
  CHECK(in_time);
  node.AnswerAll();  // lets one that waits go on
  CHECK(others.get());
}

}  // namespace
}  // namespace ringd
