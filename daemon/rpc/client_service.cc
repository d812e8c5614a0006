#include <grpcpp/server_context.h>

#include <optional>
#include <utility>

#include "daemon/rpc/call_answer.h"
#include "daemon/rpc/services.h"
#include "proto/attach/handshake.h"
#include "proto/base/mutex.h"
#include "proto/rpc/client.grpc.pb.h"

namespace ringd {
namespace {

std::optional<absl::string_view> TokenOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kSessionTokenKey);
  if (found == context.client_metadata().end()) return std::nullopt;
  return absl::string_view(found->second.data(), found->second.size());
}

void RefuseWithoutToken(grpc::ServerUnaryReactor& reactor) {
  reactor.Finish(grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                              "this call needs the session token that ringd hands out when a "
                              "trainer attaches"));
}

// A Join: it may wait for minutes, so the engine hears if its caller goes.
//
// Thread safety: gRPC's and the progress threads.
// Ownership: its own; it goes when gRPC is done with it.
class JoinReactor final : public grpc::ServerUnaryReactor {
 public:
  void UseCancel(std::function<void()> cancel) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(mutex_);
      if (!cancelled_) {
        cancel_ = std::move(cancel);
        return;
      }
    }
    cancel();
  }

  void OnCancel() override ABSL_LOCKS_EXCLUDED(mutex_) {
    std::function<void()> cancel;
    {
      MutexLock lock(mutex_);
      cancelled_ = true;
      cancel = std::move(cancel_);
    }
    if (cancel != nullptr) cancel();
  }

  void OnDone() override { delete this; }

 private:
  Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_ ABSL_GUARDED_BY(mutex_);
};

class ClientService final : public v1::Client::CallbackService {
 public:
  ClientService(EngineControl* engine, const Caller& caller) noexcept
      : engine_(engine), caller_(caller) {}

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
    auto* const reactor = new JoinReactor;
    if (const auto token = TokenOf(*context)) {
      // gRPC is not done with it before this function has returned it.
      reactor->UseCancel(
          engine_->Join(caller_, *token, *request, AnswerTo<v1::JoinReply>(reactor, reply)));
    } else {
      RefuseWithoutToken(*reactor);
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* RegisterTensors(grpc::CallbackServerContext* context,
                                            const v1::RegisterTensorsRequest* request,
                                            v1::RegisterTensorsReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->RegisterTensors(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* UnregisterTensors(grpc::CallbackServerContext* context,
                                              const v1::UnregisterTensorsRequest* request,
                                              v1::UnregisterTensorsReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->UnregisterTensors(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* CreateCommunicator(grpc::CallbackServerContext* context,
                                               const v1::CreateCommunicatorRequest* request,
                                               v1::CreateCommunicatorReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->CreateCommunicator(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* DestroyCommunicator(grpc::CallbackServerContext* context,
                                                const v1::DestroyCommunicatorRequest* request,
                                                v1::DestroyCommunicatorReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->DestroyCommunicator(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* DescribeMismatch(grpc::CallbackServerContext* context,
                                             const v1::DescribeMismatchRequest* request,
                                             v1::DescribeMismatchReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->DescribeMismatch(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* OpenDevice(grpc::CallbackServerContext* context,
                                       const v1::OpenDeviceRequest* request,
                                       v1::OpenDeviceReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->OpenDevice(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* AgreeOnDevices(grpc::CallbackServerContext* context,
                                           const v1::AgreeOnDevicesRequest* request,
                                           v1::AgreeOnDevicesReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->AgreeOnDevices(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request, v1::LeaveReply* reply) override {
    return WithToken(context, reply, [&](absl::string_view token, auto answer) {
      engine_->Leave(caller_, token, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                 v1::PingReply*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  template <typename Reply, typename Ask>
  static grpc::ServerUnaryReactor* WithToken(grpc::CallbackServerContext* context, Reply* reply,
                                             Ask ask) {
    if (const auto token = TokenOf(*context)) {
      return Serve(context, reply, [&](Answer<Reply> answer) { ask(*token, std::move(answer)); });
    }
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    RefuseWithoutToken(*reactor);
    return reactor;
  }

  EngineControl* const engine_;
  const Caller caller_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeClientService(EngineControl* engine, const Caller& caller) {
  return std::make_unique<ClientService>(engine, caller);
}

}  // namespace ringd
