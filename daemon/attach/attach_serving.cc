// What becomes of a connection that has said what it wants.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/attach/attach_listener.h"
#include "daemon/attach/refusal.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

absl::Status CheckVersion(const PendingConnection& connection) {
  if (connection.request().version == kAttachVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the client library speaks attach version ", connection.request().version,
      " and this ringd speaks version ", kAttachVersion, ": install matching versions"));
}

}  // namespace

std::optional<UserVerdict> AttachListener::Judge(const PeerCredentials& peer) {
  const std::shared_ptr<Admission> admission = this->admission();
  if (std::optional<UserVerdict> verdict = admission->AtSight(peer)) return verdict;
  return questions_.Find(admission, peer);
}

void AttachListener::ServeOrPark(std::map<std::uint64_t, PendingConnection>::iterator found,
                                 PendingConnection::Progress wanted) {
  const PeerCredentials peer = found->second.peer();
  std::optional<UserVerdict> verdict;
  // Nobody is asked about those who are refused anyway.
  if (wanted == PendingConnection::Progress::kGrpc ? !CheckGrpcLimits(peer.uid).ok()
                                                   : !CheckVersion(found->second).ok()) {
    verdict.emplace();
  } else {
    verdict = Judge(peer);
  }
  // A trainer is no operator's tool: his is not kept waiting for that.
  if (!verdict.has_value() && wanted == PendingConnection::Progress::kAttach) {
    verdict = admission()->AdmittedAtSight(peer);
  }
  // Twice as long as a handshake: ringctl and trainers wait longer.
  if (!verdict.has_value()) {
    return found->second.Park(wanted, Clock::now() + 2 * handshake_timeout_);
  }
  PendingConnection connection = std::move(found->second);
  pending_.erase(found);
  Serve(std::move(connection), wanted, *verdict);
}

void AttachListener::ServeParked() {
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto found = next++;
    if (found->second.parked()) ServeOrPark(found, found->second.wanted());
  }
}

void AttachListener::EndWait(PendingConnection connection) {
  const std::shared_ptr<Admission> admission = this->admission();
  const PeerCredentials peer = connection.peer();
  const absl::Status late = absl::UnavailableError(
      absl::StrCat("the system's user database has not said in time (twice handshake_timeout) ",
                   "which groups uid ", peer.uid, " is in"));
  const PendingConnection::Progress wanted = connection.wanted();
  Serve(std::move(connection), wanted,
        admission->AdmittedAtSight(peer).value_or(UserVerdict{late, false}));
}

void AttachListener::Serve(PendingConnection connection, PendingConnection::Progress wanted,
                           const UserVerdict& verdict) {
  if (wanted == PendingConnection::Progress::kGrpc) {
    ServeGrpc(std::move(connection), verdict);
  } else {
    ServeAttach(std::move(connection), verdict);
  }
}

absl::Status AttachListener::CheckGrpcLimits(uid_t uid) const {
  const auto of_user = static_cast<std::size_t>(
      std::count_if(grpc_connections_.begin(), grpc_connections_.end(),
                    [uid](const auto& entry) { return entry.second.uid == uid; }));
  const std::size_t kept = uid == 0 ? 0 : kGrpcConnectionsKeptForRoot;
  if (of_user >= kMaxGrpcConnectionsPerUser ||
      grpc_connections_.size() + kept >= kMaxGrpcConnections) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "closed: ", of_user, " gRPC connections of this user are open on ringd's socket, ",
        grpc_connections_.size(), " of all users; at most ", kMaxGrpcConnectionsPerUser, " and ",
        kMaxGrpcConnections, " may be, of which ", kGrpcConnectionsKeptForRoot,
        " are kept for root"));
  }
  return absl::OkStatus();
}

bool AttachListener::HasRoomForRefused() const {
  const auto refused = std::count_if(grpc_connections_.begin(), grpc_connections_.end(),
                                     [](const auto& entry) { return !entry.second.admitted; });
  return static_cast<std::size_t>(refused) < kMaxRefusedGrpcConnections;
}

void AttachListener::ServeGrpc(PendingConnection connection, const UserVerdict& verdict) {
  const PeerCredentials peer = connection.peer();
  // Both kinds count: who is not admitted may not use up ringd's descriptors either.
  if (absl::Status status = CheckGrpcLimits(peer.uid); !status.ok()) {
    LogConnection(status.message(), peer);
    return;
  }
  const absl::Status& admitted = verdict.admitted;
  if (!admitted.ok()) LogConnection(admitted.message(), peer);
  if (!admitted.ok() && !HasRoomForRefused()) return;
  // The other descriptor's interest ends with it; ours lasts until the connection hangs up.
  epoll_.Unwatch(connection.socket());
  UniqueFd watch(::fcntl(connection.socket(), F_DUPFD_CLOEXEC, 0));
  const std::uint64_t key = next_key_++;
  if (!watch.valid() || !epoll_.Watch(watch.get(), 0, key)) {
    return LogConnection(ErrnoStatus(errno, "closed, as it can't be watched").message(), peer);
  }
  GrpcConnection& kept =
      grpc_connections_
          .emplace(key, GrpcConnection{std::move(watch), peer.uid, admitted.ok(), nullptr})
          .first->second;
  if (admitted.ok()) {
    kept.served =
        callbacks_.on_grpc_connection(connection.TakeSocket(), {peer.uid, verdict.is_operator});
  } else {
    callbacks_.on_refused_grpc_connection(connection.TakeSocket());
  }
}

void AttachListener::ServeAttach(PendingConnection connection, const UserVerdict& verdict) {
  epoll_.Unwatch(connection.socket());
  const absl::Status status = TryAttach(connection, verdict);
  if (status.ok()) return;
  callbacks_.on_refused();
  LogConnection(absl::StrCat("not attached: ", status.message()), connection.peer());
  RefuseAttach(connection.socket(), status);
}

absl::Status AttachListener::KeepSessionConnection(UniqueFd socket, const SessionResources& session,
                                                   const AdmittedUser& user) {
  const std::uint64_t key = next_key_;
  next_key_ += 2;
  SessionConnection kept;
  kept.watch.Reset(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!kept.watch.valid() || !epoll_.Watch(kept.watch.get(), 0, key)) {
    return ErrnoStatus(errno, "watching a session's connection");
  }
  if (session.pidfd.valid()) {
    kept.process.Reset(::fcntl(session.pidfd.get(), F_DUPFD_CLOEXEC, 0));
    if (!kept.process.valid() || !epoll_.Watch(kept.process.get(), EPOLLIN, key + 1)) {
      return ErrnoStatus(errno, "watching a session's process");
    }
  }
  kept.place = session.admission;
  kept.served = callbacks_.on_grpc_connection(std::move(socket), user);
  session_connections_.emplace(key, std::move(kept));
  return absl::OkStatus();
}

absl::Status AttachListener::TryAttach(PendingConnection& connection, const UserVerdict& verdict) {
  if (absl::Status status = CheckVersion(connection); !status.ok()) return status;
  if (!verdict.admitted.ok()) return verdict.admitted;
  if (callbacks_.is_draining()) {
    return absl::FailedPreconditionError(
        "this ringd is draining: it takes no new jobs, until `ringctl drain --undo` or its next "
        "start. Without it: ringctl run -n RANKS -- COMMAND");
  }
  absl::StatusOr<std::shared_ptr<const void>> place = admission()->TakePlace(connection.peer().uid);
  if (!place.ok()) return place.status();
  absl::StatusOr<NewSession> made =
      MakeSession(SessionId(next_session_), sizes_, connection.peer(), connection.socket());
  if (!made.ok()) return made.status();
  made->resources->lifeline.Reset(::fcntl(connection.socket(), F_DUPFD_CLOEXEC, 0));
  if (!made->resources->lifeline.valid()) return ErrnoStatus(errno, "dup of the lifeline");
  made->resources->admission = *std::move(place);
  ++next_session_;

  // The lobby and the gRPC server have the session before its client can use it.
  const absl::Status kept =
      KeepSessionConnection(std::move(made->grpc_server_end), *made->resources,
                            {connection.peer().uid, verdict.is_operator});
  if (!kept.ok()) return kept;
  callbacks_.on_attached(std::move(made->resources));
  std::array<int, kAttachFdCount> fds;
  for (std::size_t i = 0; i < fds.size(); ++i) fds[i] = made->reply_fds[i].get();
  const absl::Status sent = SendWithFds(
      connection.socket(), std::as_bytes(std::span(&made->reply, 1)), fds, Clock::now());
  if (!sent.ok()) {
    // It may be there and wait: the kernel passes no more descriptors of a user than he may have
    // open.
    RefuseAttach(connection.socket(), sent);
    // The lobby holds this socket too and takes the hang-up for the client's end.
    ::shutdown(connection.socket(), SHUT_RDWR);
    LogConnection(absl::StrCat("gone while attaching: ", sent.message()), connection.peer());
  }
  return absl::OkStatus();
}

}  // namespace ringd
