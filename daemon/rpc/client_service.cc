#include <grpcpp/server_context.h>

#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/services.h"
#include "proto/attach/handshake.h"
#include "proto/rpc/client.grpc.pb.h"

namespace ringd {
namespace {

class ClientService final : public v1::Client::Service {
 public:
  explicit ClientService(EngineControl* engine) noexcept : engine_(engine) {}

  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    return WithToken(*context, [&](absl::string_view token) {
      return engine_->Join(token, *request, reply, [context] { return context->IsCancelled(); });
    });
  }

  grpc::Status RegisterTensors(grpc::ServerContext* context,
                               const v1::RegisterTensorsRequest* request,
                               v1::RegisterTensorsReply* reply) override {
    return WithToken(*context, [&](absl::string_view token) {
      return engine_->RegisterTensors(token, *request, reply);
    });
  }

  grpc::Status DescribeMismatch(grpc::ServerContext* context,
                                const v1::DescribeMismatchRequest* request,
                                v1::DescribeMismatchReply* reply) override {
    return WithToken(*context, [&](absl::string_view token) {
      return engine_->DescribeMismatch(token, *request, reply);
    });
  }

  grpc::Status Leave(grpc::ServerContext* context, const v1::LeaveRequest*,
                     v1::LeaveReply*) override {
    return WithToken(*context, [&](absl::string_view token) { return engine_->Leave(token); });
  }

 private:
  template <typename Call>
  static grpc::Status WithToken(const grpc::ServerContext& context, Call call) {
    const auto found = context.client_metadata().find(kSessionTokenKey);
    if (found == context.client_metadata().end()) {
      return grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                          "this call needs the session token that ringd hands out when a trainer "
                          "attaches");
    }
    return ToGrpcStatus(call(absl::string_view(found->second.data(), found->second.size())));
  }

  EngineControl* const engine_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeClientService(EngineControl* engine) {
  return std::make_unique<ClientService>(engine);
}

}  // namespace ringd
