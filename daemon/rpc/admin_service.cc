#include <grpcpp/server_context.h>

#include "daemon/rpc/grpc_status.h"
#include "daemon/rpc/services.h"
#include "proto/rpc/admin.grpc.pb.h"

namespace ringd {
namespace {

class AdminService final : public v1::Admin::Service {
 public:
  explicit AdminService(EngineControl* engine) noexcept : engine_(engine) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::StatusReply* reply) override {
    return ToGrpcStatus(engine_->GetStatus(reply));
  }

  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::JobsReply* reply) override {
    return ToGrpcStatus(engine_->ListJobs(*request, reply));
  }

  grpc::Status ListCommunicators(grpc::ServerContext*, const v1::ListCommunicatorsRequest* request,
                                 v1::CommunicatorsReply* reply) override {
    return ToGrpcStatus(engine_->ListCommunicators(*request, reply));
  }

  grpc::Status ListQueues(grpc::ServerContext*, const v1::ListQueuesRequest* request,
                          v1::QueuesReply* reply) override {
    return ToGrpcStatus(engine_->ListQueues(*request, reply));
  }

  grpc::Status ReportExit(grpc::ServerContext*, const v1::ReportExitRequest* request,
                          v1::ReportExitReply*) override {
    return ToGrpcStatus(engine_->ReportExit(*request));
  }

 private:
  EngineControl* const engine_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(EngineControl* engine) {
  return std::make_unique<AdminService>(engine);
}

}  // namespace ringd
