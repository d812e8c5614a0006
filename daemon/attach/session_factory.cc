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
  if (pid <= 0) return UniqueFd();
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

absl::Status SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "O_NONBLOCK");
  }
  return absl::OkStatus();
}

struct SharedMemory {
  UniqueFd fd;
  MemoryMapping mapping;
};

absl::StatusOr<SharedMemory> MakeMemory(const std::string& name, std::uint64_t bytes) {
  absl::StatusOr<UniqueFd> fd = CreateSealedMemfd(name, bytes);
  if (!fd.ok()) return fd.status();
  absl::StatusOr<MemoryMapping> mapping = MemoryMapping::Map(fd->get(), bytes);
  if (!mapping.ok()) return mapping.status();
  return SharedMemory{*std::move(fd), *std::move(mapping)};
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

  absl::StatusOr<SharedMemory> segment =
      MakeMemory(absl::StrCat("ringd-session-", id.value()), resources.layout.segment_bytes());
  if (!segment.ok()) return segment.status();
  absl::StatusOr<SharedMemory> arena =
      MakeMemory(absl::StrCat("ringd-arena-", id.value()), sizes.arena_bytes);
  if (!arena.ok()) return arena.status();
  resources.segment = std::move(segment->mapping);
  resources.arena = std::move(arena->mapping);
  InitializeSessionSegment(resources.segment.data(), resources.layout, id.value(),
                           sizes.arena_bytes);

  resources.arena_fd.Reset(fcntl(arena->fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!resources.arena_fd.valid()) return ErrnoStatus(errno, "dup of an arena");

  UniqueFd event_fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event_fd.valid()) return ErrnoStatus(errno, "eventfd");
  resources.event_fd.Reset(fcntl(event_fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!resources.event_fd.valid()) return ErrnoStatus(errno, "dup of an eventfd");
  resources.pidfd = PidFdOf(connection, peer.pid);

  absl::StatusOr<std::pair<UniqueFd, UniqueFd>> ends = UnixSocketPair();
  if (!ends.ok()) return ends.status();
  for (const int fd : {ends->first.get(), ends->second.get()}) {
    if (absl::Status status = SetNonBlocking(fd); !status.ok()) return status;
  }
  // gRPC's threads, which serve everybody, would close what comes along.
  RefuseDescriptors(ends->first.get());
  made.grpc_server_end = std::move(ends->first);

  made.reply_fds[kSessionSegmentFd] = std::move(segment->fd);
  made.reply_fds[kArenaFd] = std::move(arena->fd);
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
