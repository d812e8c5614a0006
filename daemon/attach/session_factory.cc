#include "daemon/attach/session_factory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"
#include "proto/base/memfd.h"
#include "proto/base/memory_mapping.h"

// Debian 12's headers are older than its kernels may be.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace ringd {
namespace {

constexpr std::size_t kTokenBytes = sizeof(AttachReply::token) / 2;

absl::StatusOr<std::string> MakeToken() {
  std::string bytes(kTokenBytes, '\0');
  // Up to 256 bytes come whole and uninterrupted once the kernel's pool is ready.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return ErrnoStatus(errno, "getrandom");
  }
  return absl::BytesToHexString(bytes);
}

// The process at the other end, or nothing. The socket's own pidfd can't be mistaken for that of a
// process which got the same pid later; older kernels have only the pid.
UniqueFd PidFdOf(int connection, pid_t pid) {
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return UniqueFd(fd);
  // Else the process has gone, and its number may be another's.
  if (errno != ENOPROTOOPT || pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

absl::Status SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "O_NONBLOCK");
  }
  return absl::OkStatus();
}

// Before anybody else has the descriptor.
absl::Status InitializeSegment(int fd, const SessionResources& resources) {
  const absl::StatusOr<MemoryMapping> segment =
      MemoryMapping::Map(fd, resources.layout.segment_bytes());
  if (!segment.ok()) return segment.status();
  InitializeSessionSegment(segment->data(), resources.layout, resources.id.value(),
                           resources.arena_bytes);
  return absl::OkStatus();
}

// Of a descriptor that the trainer gets: ringd's own.
absl::StatusOr<UniqueFd> Duplicate(const UniqueFd& fd) {
  UniqueFd own(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return ErrnoStatus(errno, "dup of a session's descriptor");
  return own;
}

}  // namespace

absl::StatusOr<NewSession> MakeSession(SessionId id, const SessionSizes& sizes,
                                       const PeerCredentials& peer, int connection) {
  NewSession made{};
  made.resources = std::make_unique<SessionResources>();
  SessionResources& resources = *made.resources;
  resources.id = id;
  resources.peer = peer;
  resources.arena_bytes = sizes.arena_bytes;
  resources.layout = {sizes.submission_capacity, sizes.submission_capacity};

  absl::StatusOr<std::string> token = MakeToken();
  if (!token.ok()) return token.status();
  resources.token = *std::move(token);

  absl::StatusOr<UniqueFd> segment = CreateSealedMemfd(absl::StrCat("ringd-session-", id.value()),
                                                       resources.layout.segment_bytes());
  if (!segment.ok()) return segment.status();
  if (absl::Status status = InitializeSegment(segment->get(), resources); !status.ok()) {
    return status;
  }
  absl::StatusOr<UniqueFd> arena =
      CreateSealedMemfd(absl::StrCat("ringd-arena-", id.value()), sizes.arena_bytes);
  if (!arena.ok()) return arena.status();
  UniqueFd event_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event_fd.valid()) return ErrnoStatus(errno, "eventfd");
  for (const auto& [theirs, own] : {std::pair{&*segment, &resources.segment_fd},
                                    {&*arena, &resources.arena_fd},
                                    {&event_fd, &resources.event_fd}}) {
    absl::StatusOr<UniqueFd> duplicate = Duplicate(*theirs);
    if (!duplicate.ok()) return duplicate.status();
    *own = *std::move(duplicate);
  }
  resources.pidfd = PidFdOf(connection, peer.pid);

  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> ends = UnixSocketPair();
  if (!ends.ok()) return ends.status();
  for (const int fd : {ends->first.get(), ends->second.get()}) {
    if (absl::Status status = SetNonBlocking(fd); !status.ok()) return status;
  }
  // gRPC's threads, which serve everybody, would close what comes along.
  RefuseDescriptors(ends->first.get());
  made.grpc_server_end = std::move(ends->first);

  made.reply_fds[kSessionSegmentFd] = *std::move(segment);
  made.reply_fds[kArenaFd] = *std::move(arena);
  made.reply_fds[kEngineEventFd] = std::move(event_fd);
  made.reply_fds[kGrpcFd] = std::move(ends->second);

  made.reply.magic = kAttachMagic;
  made.reply.version = kAttachVersion;
  made.reply.session = id.value();
  made.reply.segment_bytes = resources.layout.segment_bytes();
  made.reply.arena_bytes = sizes.arena_bytes;
  std::memcpy(made.reply.token, resources.token.data(), sizeof(made.reply.token));
  return made;
}

}  // namespace ringd
