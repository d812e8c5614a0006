#include "proto/base/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/errno_status.h"

namespace ringd {
namespace {

constexpr std::size_t kMaxFds = 8;

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' must have 1 to ",
                                                   sizeof(address.sun_path) - 1, " bytes"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status PollUntil(int socket, short events, Clock::time_point deadline,  // NOLINT
                       absl::string_view what) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() < 0) return absl::DeadlineExceededError(absl::StrCat(what, " timed out"));
    pollfd entry{socket, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<long>(left.count(), 60'000)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
  }
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, Clock::time_point deadline) {
  absl::StatusOr<sockaddr_un> address = Address(path);
  if (!address.ok()) return address.status();
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  // A full backlog answers EAGAIN at once, so this is the one place that has to try again.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return ErrnoStatus(errno, absl::StrCat("connecting to ", path));
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("connecting to ", path, " timed out"));
    }
    ::poll(nullptr, 0, 1);
  }
  return fd;
}

absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, mode_t mode) {
  absl::StatusOr<sockaddr_un> address = Address(path);
  if (!address.ok()) return address.status();
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return absl::AlreadyExistsError(absl::StrCat(path, " exists and is no socket"));
    }
    const auto probe = ConnectUnix(path, Clock::now() + std::chrono::seconds(1));
    if (probe.ok() || absl::IsDeadlineExceeded(probe.status())) {
      return absl::AlreadyExistsError(absl::StrCat("another process listens on ", path));
    }
    ::unlink(path.c_str());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  // The mode is set between bind and listen: nobody can connect before it holds.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("binding ", path));
  }
  if (::chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, absl::StrCat("chmod ", path));
  if (::listen(fd.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, absl::StrCat("listen ", path));
  return fd;
}

void RefuseDescriptors(int socket) {
#ifndef SO_PASSRIGHTS
  constexpr int SO_PASSRIGHTS =
      83;  // NOLINT(readability-identifier-naming): as the kernel calls it
#endif
  const int no = 0;
  ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> UnixSocketPair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  return std::make_pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

absl::Status SendWithFds(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                         Clock::time_point deadline) {
  if (fds.size() > kMaxFds || bytes.empty()) {
    return absl::InvalidArgumentError("1 byte or more and at most 8 descriptors are sent at once");
  }
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  bool fds_pending = !fds.empty();
  while (!bytes.empty()) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fds_pending) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      fds_pending = false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (auto status = PollUntil(socket, POLLOUT, deadline, "sending"); !status.ok()) {
        return status;
      }
    } else if (errno != EINTR) {
      return ErrnoStatus(errno, "sendmsg");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<UniqueFd>> ReceiveWithFds(int socket, std::span<std::byte> bytes,
                                                     Clock::time_point deadline) {
  std::vector<UniqueFd> fds;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  while (!bytes.empty()) {
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t received = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (received < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return ErrnoStatus(errno, "recvmsg");
      if (auto status = PollUntil(socket, POLLIN, deadline, "receiving"); !status.ok()) {
        return status;
      }
      continue;
    }
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        fds.emplace_back(fd);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return absl::ResourceExhaustedError(
          "descriptors were lost: this process has too many open files (RLIMIT_NOFILE)");
    }
    if (received == 0) return absl::UnavailableError("the other end closed the connection");
    bytes = bytes.subspan(static_cast<std::size_t>(received));
  }
  return fds;
}

}  // namespace ringd
