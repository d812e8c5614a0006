#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "daemon/rpc/call_answer.h"
#include "daemon/rpc/services.h"
#include "proto/attach/handshake.h"
#include "proto/rpc/client.grpc.pb.h"

namespace ringd {
namespace {

std::optional<absl::string_view> TokenOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kSessionTokenKey);
  if (found == context.client_metadata().end()) return std::nullopt;
  return absl::string_view(found->second.data(), found->second.size());
}

absl::Status MissingToken() {
  return absl::UnauthenticatedError(
      "this call needs the session token that ringd hands out when a trainer attaches");
}

class ClientService final : public v1::Client::CallbackService {
 public:
  ClientService(NodeCalls* node, const Caller& caller, std::shared_ptr<UserCalls> calls)
      : node_(node), caller_(caller), calls_(std::move(calls)) {}

  // The synchronous forms are not meant to be hidden.
  using v1::Client::CallbackService::AgreeOnDevices;
  using v1::Client::CallbackService::CreateCommunicator;
  using v1::Client::CallbackService::DescribeMismatch;
  using v1::Client::CallbackService::DestroyCommunicator;
  using v1::Client::CallbackService::Join;
  using v1::Client::CallbackService::Leave;
  using v1::Client::CallbackService::OpenDevice;
  using v1::Client::CallbackService::Ping;
  using v1::Client::CallbackService::RegisterTensors;
  using v1::Client::CallbackService::UnregisterTensors;

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request, v1::JoinReply* reply) override {
    // It may wait for minutes, so ringd hears if its caller goes.
    return Serve(calls_, *request, reply,
                 [&](Answer<v1::JoinReply> answer) -> std::function<void()> {
                   if (const auto token = TokenOf(*context)) {
                     return node_->Join(caller_, *token, *request, std::move(answer));
                   }
                   answer(MissingToken(), {});
                   return [] {};
                 });
  }

  grpc::ServerUnaryReactor* RegisterTensors(grpc::CallbackServerContext* context,
                                            const v1::RegisterTensorsRequest* request,
                                            v1::RegisterTensorsReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->RegisterTensors(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* UnregisterTensors(grpc::CallbackServerContext* context,
                                              const v1::UnregisterTensorsRequest* request,
                                              v1::UnregisterTensorsReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->UnregisterTensors(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* CreateCommunicator(grpc::CallbackServerContext* context,
                                               const v1::CreateCommunicatorRequest* request,
                                               v1::CreateCommunicatorReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->CreateCommunicator(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* DestroyCommunicator(grpc::CallbackServerContext* context,
                                                const v1::DestroyCommunicatorRequest* request,
                                                v1::DestroyCommunicatorReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->DestroyCommunicator(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* DescribeMismatch(grpc::CallbackServerContext* context,
                                             const v1::DescribeMismatchRequest* request,
                                             v1::DescribeMismatchReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->DescribeMismatch(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* OpenDevice(grpc::CallbackServerContext* context,
                                       const v1::OpenDeviceRequest* request,
                                       v1::OpenDeviceReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->OpenDevice(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* AgreeOnDevices(grpc::CallbackServerContext* context,
                                           const v1::AgreeOnDevicesRequest* request,
                                           v1::AgreeOnDevicesReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->AgreeOnDevices(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveReply* reply) override {
    return WithToken(context, *request, reply, [&](absl::string_view token, auto answer) {
      node_->Leave(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext*, const v1::PingRequest* request,
                                 v1::PingReply* reply) override {
    return Serve(calls_, *request, reply,
                 [](Answer<v1::PingReply> answer) { answer(absl::OkStatus(), {}); });
  }

 private:
  template <typename Reply, typename Ask>
  grpc::ServerUnaryReactor* WithToken(grpc::CallbackServerContext* context,
                                      const google::protobuf::Message& request, Reply* reply,
                                      Ask ask) {
    return Serve(calls_, request, reply, [&](Answer<Reply> answer) {
      if (const auto token = TokenOf(*context)) {
        ask(*token, std::move(answer));
      } else {
        answer(MissingToken(), {});
      }
    });
  }

  NodeCalls* const node_;
  const Caller caller_;
  const std::shared_ptr<UserCalls> calls_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeClientService(NodeCalls* node, const Caller& caller,
                                                 std::shared_ptr<UserCalls> calls) {
  return std::make_unique<ClientService>(node, caller, std::move(calls));
}

}  // namespace ringd
