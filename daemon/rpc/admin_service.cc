#include <memory>
#include <utility>

#include "daemon/rpc/call_answer.h"
#include "daemon/rpc/services.h"
#include "proto/rpc/admin.grpc.pb.h"

namespace ringd {
namespace {

class AdminService final : public v1::Admin::CallbackService {
 public:
  AdminService(NodeCalls* node, const Caller& caller, std::shared_ptr<UserCalls> calls)
      : node_(node), caller_(caller), calls_(std::move(calls)) {}

  // The synchronous forms are not meant to be hidden.
  using v1::Admin::CallbackService::Drain;
  using v1::Admin::CallbackService::GetGpus;
  using v1::Admin::CallbackService::GetStatus;
  using v1::Admin::CallbackService::ListCommunicators;
  using v1::Admin::CallbackService::ListJobs;
  using v1::Admin::CallbackService::ListQueues;
  using v1::Admin::CallbackService::ReportExit;
  using v1::Admin::CallbackService::TraceJob;

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*,
                                      const v1::GetStatusRequest* request,
                                      v1::StatusReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->GetStatus(caller_, std::move(answer)); });
  }

  grpc::ServerUnaryReactor* GetGpus(grpc::CallbackServerContext*, const v1::GetGpusRequest* request,
                                    v1::GpusReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->GetGpus(caller_, std::move(answer)); });
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const v1::DrainRequest* request,
                                  v1::DrainReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->Drain(caller_, *request, std::move(answer)); });
  }

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext*,
                                     const v1::ListJobsRequest* request,
                                     v1::JobsReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->ListJobs(caller_, *request, std::move(answer)); });
  }

  grpc::ServerUnaryReactor* ListCommunicators(grpc::CallbackServerContext*,
                                              const v1::ListCommunicatorsRequest* request,
                                              v1::CommunicatorsReply* reply) override {
    return Serve(calls_, *request, reply, [&](auto answer) {
      node_->ListCommunicators(caller_, *request, std::move(answer));
    });
  }

  grpc::ServerUnaryReactor* ListQueues(grpc::CallbackServerContext*,
                                       const v1::ListQueuesRequest* request,
                                       v1::QueuesReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->ListQueues(caller_, *request, std::move(answer)); });
  }

  grpc::ServerUnaryReactor* TraceJob(grpc::CallbackServerContext*, const v1::TraceRequest* request,
                                     v1::TraceReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->TraceJob(caller_, *request, std::move(answer)); });
  }

  grpc::ServerUnaryReactor* ReportExit(grpc::CallbackServerContext*,
                                       const v1::ReportExitRequest* request,
                                       v1::ReportExitReply* reply) override {
    return Serve(calls_, *request, reply,
                 [&](auto answer) { node_->ReportExit(caller_, *request, std::move(answer)); });
  }

 private:
  NodeCalls* const node_;
  const Caller caller_;
  const std::shared_ptr<UserCalls> calls_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(NodeCalls* node, const Caller& caller,
                                                std::shared_ptr<UserCalls> calls) {
  return std::make_unique<AdminService>(node, caller, std::move(calls));
}

}  // namespace ringd
