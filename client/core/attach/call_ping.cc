#include "client/core/attach/call_ping.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "proto/rpc/client.pb.h"

namespace ringd::client {

struct CallPing::Asked {
  grpc::ClientContext context;
  v1::PingReply reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::PingReply>> reader;
};

CallPing::CallPing(v1::Client::Stub* stub) : stub_(stub) {}

std::uint64_t CallPing::Ask() {
  void* tag = nullptr;
  bool ok = false;
  if (queue_.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) ==
      grpc::CompletionQueue::GOT_EVENT) {
    // A ringd that knows no pings answers, too.
    const grpc::StatusCode code = asked_->status.error_code();
    if (code == grpc::StatusCode::OK || code == grpc::StatusCode::UNIMPLEMENTED) ++answered_;
    asked_.reset();
  }
  if (asked_ == nullptr) {
    asked_ = std::make_unique<Asked>();
    asked_->reader = stub_->AsyncPing(&asked_->context, v1::PingRequest(), &queue_);
    asked_->reader->Finish(&asked_->reply, &asked_->status, nullptr);
  }
  return answered_;
}

CallPing::~CallPing() {
  if (asked_ != nullptr) asked_->context.TryCancel();
  queue_.Shutdown();
  // What was given up comes out at once.
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

}  // namespace ringd::client
