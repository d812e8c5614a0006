#include "tests/soak/attackers/raw_session.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <unistd.h>

#include <span>
#include <utility>

#include "proto/attach/handshake.h"
#include "proto/base/clock.h"
#include "proto/base/unix_socket.h"

namespace ringd::soak {

RawSession::RawSession(const std::string& path) {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
  absl::StatusOr<UniqueFd> connection = ConnectUnix(path, deadline);
  if (!connection.ok()) return;
  AttachRequest request{};
  request.magic = kAttachMagic;
  request.version = kAttachVersion;
  if (!SendWithFds(connection->get(), std::as_bytes(std::span(&request, 1)), {}, deadline).ok()) {
    return;
  }
  AttachReply reply{};
  absl::StatusOr<std::vector<UniqueFd>> sent =
      ReceiveWithFds(connection->get(), std::as_writable_bytes(std::span(&reply, 1)), deadline);
  if (!sent.ok() || reply.status != 0 || sent->size() < kAttachFdCount) return;
  lifeline = *std::move(connection);
  descriptors = *std::move(sent);
  token.assign(reply.token, sizeof(reply.token));
}

v1::Client::Stub& RawSession::stub() {
  if (stub_ == nullptr) {
    const int socket = descriptors[kGrpcFd].Release();
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
    stub_ = v1::Client::NewStub(grpc::CreateInsecureChannelFromFd("ringd", socket));
  }
  return *stub_;
}

std::unique_ptr<grpc::ClientContext> RawSession::Call(int seconds) const {
  auto context = std::make_unique<grpc::ClientContext>();
  context->AddMetadata(kSessionTokenKey, token);
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
  return context;
}

std::uint32_t RawSession::JoinAlone(const std::string& job) {
  v1::JoinRequest request;
  request.set_job_id(job);
  request.set_size(1);
  request.set_local_size(1);
  request.set_pid(::getpid());
  v1::JoinReply reply;
  return stub().Join(Call(10).get(), request, &reply).ok() ? reply.communicator() : 0;
}

}  // namespace ringd::soak
