#include "client/core/attach/attachment.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/attach/handshake.h"
#include "proto/base/unix_socket.h"

namespace ringd::client {
namespace {

absl::Status WithContext(const absl::Status& status, const std::string& socket) {
  return absl::Status(status.code(),
                      absl::StrCat("attaching to ringd at ", socket, ": ", status.message()));
}

absl::StatusOr<UniqueFd> Connect(const std::string& socket, const std::string& advice,
                                 Clock::time_point deadline, bool& nobody_there) {
  absl::StatusOr<UniqueFd> connection = ConnectUnix(socket, deadline);
  if (connection.ok()) return connection;
  const absl::Status& status = connection.status();
  nobody_there = absl::IsNotFound(status) || absl::IsUnavailable(status);
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat("no ringd at ", socket, ": ", advice));
  }
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(
        absl::StrCat("no ringd listens on ", socket, " any more: ", advice));
  }
  if (absl::IsPermissionDenied(status)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "this user may not connect to ", socket,
        ": ask for membership in the group that owns the socket, or start the job with `ringctl "
        "run`, which brings its own ringd"));
  }
  return WithContext(status, socket);
}

// The reply to our request, with the descriptors that came along.
absl::StatusOr<std::vector<UniqueFd>> Exchange(int connection, AttachReply& reply,
                                               Clock::time_point deadline) {
  AttachRequest request{};
  request.magic = kAttachMagic;
  request.version = kAttachVersion;
  absl::Status sent = SendWithFds(connection, std::as_bytes(std::span(&request, 1)), {}, deadline);
  if (!sent.ok()) return sent;
  return ReceiveWithFds(connection, std::as_writable_bytes(std::span(&reply, 1)), deadline);
}

absl::Status CheckReply(const AttachReply& reply, std::size_t fd_count) {
  if (reply.magic != kAttachMagic) {
    return absl::FailedPreconditionError("what listens there is no ringd");
  }
  const std::size_t text_length = std::min<std::size_t>(reply.text_length, sizeof(reply.text));
  const absl::string_view text(reply.text, text_length);
  if (reply.version != kAttachVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "ringd speaks version ", reply.version, " of the attach protocol, this library version ",
        kAttachVersion, ": install the same release of both", text.empty() ? "" : "; ", text));
  }
  if (reply.status != 0) {
    return absl::Status(static_cast<absl::StatusCode>(reply.status),
                        text.empty() ? "ringd refused without a reason" : text);
  }
  if (fd_count != kAttachFdCount) {
    return absl::InternalError(absl::StrCat("ringd sent ", fd_count, " descriptors instead of ",
                                            static_cast<int>(kAttachFdCount)));
  }
  return absl::OkStatus();
}

absl::Status MapMemory(const std::vector<UniqueFd>& fds, const AttachReply& reply,
                       Attachment& attachment) {
  if (reply.segment_bytes < sizeof(SessionHeader) || reply.arena_bytes == 0) {
    return absl::InternalError("ringd offers no memory");
  }
  absl::StatusOr<MemoryMapping> segment =
      MemoryMapping::MapSealed(fds[kSessionSegmentFd].get(), reply.segment_bytes);
  if (!segment.ok()) return segment.status();
  absl::StatusOr<MemoryMapping> arena =
      MemoryMapping::MapSealed(fds[kArenaFd].get(), reply.arena_bytes);
  if (!arena.ok()) return arena.status();
  const auto& header = *reinterpret_cast<const SessionHeader*>(segment->data());
  absl::Status status = CheckSessionSegment(header, segment->size());
  if (!status.ok()) return status;
  attachment.layout = {header.submission_capacity, header.completion_capacity};
  attachment.segment = *std::move(segment);
  attachment.arena = *std::move(arena);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Attachment> AttachToRingd(const std::string& socket, const std::string& advice,
                                         Clock::time_point deadline, bool* nobody_there) {
  bool ignored = false;
  absl::StatusOr<UniqueFd> connection =
      Connect(socket, advice, deadline, nobody_there == nullptr ? ignored : *nobody_there);
  if (!connection.ok()) return connection.status();
  AttachReply reply{};
  absl::StatusOr<std::vector<UniqueFd>> fds = Exchange(connection->get(), reply, deadline);
  if (!fds.ok()) return WithContext(fds.status(), socket);
  if (absl::Status status = CheckReply(reply, fds->size()); !status.ok()) {
    return WithContext(status, socket);
  }
  Attachment attachment;
  if (absl::Status status = MapMemory(*fds, reply, attachment); !status.ok()) {
    return WithContext(status, socket);
  }
  attachment.engine_wakeup = std::move((*fds)[kEngineEventFd]);
  attachment.grpc = std::move((*fds)[kGrpcFd]);
  attachment.session = reply.session;
  attachment.token.assign(reply.token, sizeof(reply.token));
  const absl::StatusOr<PeerCredentials> peer = GetPeerCredentials(connection->get());
  if (peer.ok()) attachment.ringd_pid = peer->pid;
  attachment.lifeline = *std::move(connection);
  return attachment;
}

}  // namespace ringd::client
