// A user who opens gRPC streams on ringd's local socket and leaves them open: a server that gives
// each a thread has none left for others.
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <vector>

#include "tests/soak/attackers/attacker.h"

namespace ringd::soak {
namespace {

// A server may bound the streams of one connection.
constexpr int kChannels = 40;
constexpr int kStreamsPerChannel = 10;
// A stream that the server holds open as long as its client does.
constexpr char kMethod[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

class StreamHoarder : public Attacker {
 public:
  void Attack(const Target& target) override {
    int answered = 0;
    for (int c = 0; c < kChannels; ++c) {
      grpc::ChannelArguments arguments;
      // A connection of its own for each.
      arguments.SetInt("grpc.use_local_subchannel_pool", 1);
      arguments.SetInt("grpc.channel_id", c);
      channels_.push_back(grpc::CreateCustomChannel("unix:" + target.socket,
                                                    grpc::InsecureChannelCredentials(), arguments));
      stubs_.push_back(std::make_unique<grpc::GenericStub>(channels_.back()));
      for (int s = 0; s < kStreamsPerChannel; ++s) {
        contexts_.push_back(std::make_unique<grpc::ClientContext>());
        calls_.push_back(stubs_.back()->PrepareCall(contexts_.back().get(), kMethod, &queue_));
        calls_.back()->StartCall(nullptr);
      }
    }
    while (!target.Over()) {
      void* tag = nullptr;
      bool ok = false;
      const auto soon = std::chrono::system_clock::now() + std::chrono::milliseconds(100);
      if (queue_.AsyncNext(&tag, &ok, soon) == grpc::CompletionQueue::GOT_EVENT && ok) ++answered;
    }
    Did("%d of %d streams were opened", answered, kChannels * kStreamsPerChannel);
  }

 private:
  grpc::CompletionQueue queue_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::GenericClientAsyncReaderWriter>> calls_;
};

}  // namespace

std::unique_ptr<Attacker> MakeStreamHoarder() { return std::make_unique<StreamHoarder>(); }

}  // namespace ringd::soak
