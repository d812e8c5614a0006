// A user who opens as many streams as he can, and another one who wants to train meanwhile.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "client/ringd.h"
#include "tests/daemon/rpc/health.grpc.pb.h"
#include "tests/daemon/service/ringd_process.h"

namespace ringd {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckResponse;

constexpr int kConnections = 25;
constexpr int kMaxConnections = 16;  // of one user, beside sessions'
constexpr int kStreams = 16;
constexpr uid_t kNobody = 65534;

int ThreadsOf(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    if (word != "Threads:") continue;
    int count = 0;
    status >> count;
    return count;
  }
  return 0;
}

struct Watch {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
};

// Opens streams to the reflection service, which in gRPC's own form takes a thread for each, and
// leaves them open.
class ReflectionStreams {
 public:
  explicit ReflectionStreams(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {}

  void Open() {
    Stream& stream = streams_.emplace_back();
    stream.call = stub_.PrepareCall(
        stream.context.get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &queue_);
    stream.call->StartCall(nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

 private:
  struct Stream {
    std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
  };
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::vector<Stream> streams_;
};

// Opens what it can, writes the number of streams to `out`, first those of one connection and then
// all, and keeps them until `in` ends.
[[noreturn]] void Attack(const std::string& socket, int out, int in) {
  if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(1);
  std::vector<std::unique_ptr<Watch>> watches;
  std::vector<std::unique_ptr<Health::Stub>> stubs;
  std::vector<std::unique_ptr<ReflectionStreams>> reflections;
  int opened = 0;
  for (int c = 0; c < kConnections; ++c) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel =
        grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
    stubs.push_back(Health::NewStub(channel));
    reflections.push_back(std::make_unique<ReflectionStreams>(channel));
    for (int i = 0; i < kStreams && c < kMaxConnections; ++i) reflections.back()->Open();
    for (int i = 0; i < kStreams; ++i) {
      auto watch = std::make_unique<Watch>();
      watch->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(50));
      watch->reader = stubs.back()->Watch(&watch->context, {});
      HealthCheckResponse response;
      if (!watch->reader->Read(&response)) break;
      ++opened;
      watches.push_back(std::move(watch));
    }
    if (c == 0 && ::write(out, &opened, sizeof(opened)) != sizeof(opened)) ::_exit(1);
  }
  if (::write(out, &opened, sizeof(opened)) != sizeof(opened)) ::_exit(1);
  char end = 0;
  while (::read(in, &end, 1) > 0) {
  }
  ::_exit(0);
}

TEST_CASE("ringd: one user's open streams take no threads, and another one's init works") {
  RingdProcess ringd;
  ::chmod(std::filesystem::path(ringd.socket()).parent_path().c_str(), 0755);
  ringd.Start({"--allowed-users", "*"});
  REQUIRE(ringd.WaitForNotification("READY=1"));
  int up[2];
  int down[2];
  REQUIRE((::pipe(up) == 0 && ::pipe(down) == 0));
  const pid_t attacker = ::fork();
  REQUIRE(attacker >= 0);
  if (attacker == 0) {
    ::close(down[1]);
    Attack(ringd.socket(), up[1], down[0]);
  }
  ::close(up[1]);
  ::close(down[0]);
  const auto opened = [&up] {
    pollfd entry{up[0], POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 60'000) == 1);
    int count = 0;
    REQUIRE(::read(up[0], &count, sizeof(count)) == sizeof(count));
    return count;
  };
  CHECK(opened() == kStreams);
  // gRPC's own come with the first calls, and some of those come and go.
  const int threads = ThreadsOf(ringd.pid());
  REQUIRE(threads > 0);
  CHECK(opened() == kMaxConnections * kStreams);
  CHECK_THAT(ringd.log(), Catch::Contains("gRPC connections of this user are open"));
  CHECK(ThreadsOf(ringd.pid()) < threads + kMaxConnections);

  const std::string socket = ringd.socket();
  ringd_options options{};
  options.struct_size = sizeof(options);
  options.socket = socket.c_str();
  options.job_id = "victim";
  options.size = 1;
  options.local_size = 1;
  options.on_warning = [](void*, const char*) {};
  for (int i = 0; i < 3; ++i) {
    ringd_context* context = nullptr;
    const ringd_status status = ringd_open(&options, &context);
    INFO(ringd_last_error());
    REQUIRE(status == RINGD_OK);
    ringd_close(context);
  }
  ::close(down[1]);
  int status = 0;
  REQUIRE(::waitpid(attacker, &status, 0) == attacker);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace
}  // namespace ringd
