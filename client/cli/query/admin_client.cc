#include "client/cli/query/admin_client.h"

#include <fcntl.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/support/channel_arguments.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/query/private_ringds.h"
#include "proto/base/errno_status.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"
#include "proto/rpc/admin.grpc.pb.h"

namespace ringd::cli {
namespace {

// gRPC keeps deadlines in system time.
void SetDeadline(grpc::ClientContext& context, Clock::time_point deadline) {
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline - Clock::now()));
}

}  // namespace

struct AdminClient::Connection {
  std::unique_ptr<v1::Admin::Stub> stub;

  // Calls `method` of the stub.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                     const Request&, Reply*),
                             const Request& request, Clock::time_point deadline) {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    Reply reply;
    const grpc::Status status = (stub.get()->*method)(&context, request, &reply);
    if (!status.ok()) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    }
    return reply;
  }
};

AdminClient::AdminClient(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)) {}

AdminClient::~AdminClient() = default;

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket,
                                                                  Clock::time_point deadline) {
  // gRPC would give one and the same error for everything that can be wrong with a socket.
  absl::StatusOr<UniqueFd> fd = ConnectUnix(socket, deadline);
  if (!fd.ok()) return fd.status();
  const int flags = ::fcntl(fd->get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd->get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "set the socket non-blocking");
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  auto connection = std::make_unique<Connection>();
  connection->stub = v1::Admin::NewStub(
      grpc::CreateCustomInsecureChannelFromFd("ringd", fd->Release(), arguments));
  return std::unique_ptr<AdminClient>(new AdminClient(std::move(connection)));
}

absl::StatusOr<v1::StatusReply> AdminClient::GetStatus(Clock::time_point deadline) {
  return connection_->Call(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), deadline);
}

absl::StatusOr<v1::GpusReply> AdminClient::GetGpus(Clock::time_point deadline) {
  return connection_->Call(&v1::Admin::Stub::GetGpus, v1::GetGpusRequest(), deadline);
}

absl::StatusOr<v1::DrainReply> AdminClient::Drain(bool undo, Clock::time_point deadline) {
  v1::DrainRequest request;
  request.set_undo(undo);
  return connection_->Call(&v1::Admin::Stub::Drain, request, deadline);
}

absl::StatusOr<v1::JobsReply> AdminClient::ListJobs(const std::string& job_id, bool ended,
                                                    Clock::time_point deadline) {
  v1::ListJobsRequest request;
  request.set_job_id(job_id);
  request.set_ended(ended);
  return connection_->Call(&v1::Admin::Stub::ListJobs, request, deadline);
}

absl::StatusOr<v1::CommunicatorsReply> AdminClient::ListCommunicators(const std::string& job_id,
                                                                      Clock::time_point deadline) {
  v1::ListCommunicatorsRequest request;
  request.set_job_id(job_id);
  return connection_->Call(&v1::Admin::Stub::ListCommunicators, request, deadline);
}

absl::StatusOr<v1::QueuesReply> AdminClient::ListQueues(const std::string& job_id,
                                                        Clock::time_point deadline) {
  v1::ListQueuesRequest request;
  request.set_job_id(job_id);
  return connection_->Call(&v1::Admin::Stub::ListQueues, request, deadline);
}

absl::StatusOr<v1::TraceReply> AdminClient::TraceJob(const v1::TraceRequest& request,
                                                     Clock::time_point deadline) {
  return connection_->Call(&v1::Admin::Stub::TraceJob, request, deadline);
}

absl::Status AdminClient::ReportExit(const v1::ReportExitRequest& request,
                                     Clock::time_point deadline) {
  return connection_->Call(&v1::Admin::Stub::ReportExit, request, deadline).status();
}

std::string ExplainUnreachable(const std::string& socket, const absl::Status& status) {
  std::string text = absl::StrCat("no ringd answers at ", socket, ": ", status.message(), "\n");
  switch (status.code()) {
    case absl::StatusCode::kPermissionDenied:
      absl::StrAppend(&text,
                      "This user may not open the socket: see socket_mode, allowed_users and "
                      "allowed_groups in ringd's configuration.");
      break;
    case absl::StatusCode::kDeadlineExceeded:
      absl::StrAppend(&text,
                      "It takes connections and says nothing: it is stopped or hangs, or the "
                      "machine is too busy. Its jobs may run all the same (journalctl -u ringd).");
      break;
    case absl::StatusCode::kUnavailable:
      absl::StrAppend(&text,
                      "It may have died or may not admit this user: look into its log "
                      "(journalctl -u ringd).");
      break;
    default:
      // The service's configuration may be for its own user alone.
      absl::StrAppend(&text, "Start it (", ::geteuid() == 0 ? "systemctl start ringd, or " : "",
                      "ringd --config /dev/null --socket PATH), or name its socket with --socket "
                      "or RINGD_SOCKET.");
  }
  const std::string elsewhere = DescribePrivateRingds(socket);
  if (!elsewhere.empty()) absl::StrAppend(&text, "\n", elsewhere);
  return text;
}

}  // namespace ringd::cli
