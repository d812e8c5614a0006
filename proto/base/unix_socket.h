// Unix sockets that carry descriptors and know who is at the other end.
#ifndef RINGD_PROTO_BASE_UNIX_SOCKET_H_
#define RINGD_PROTO_BASE_UNIX_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/unique_fd.h"

namespace ringd {

// Who connected, as the kernel saw it at connect time. Behind a container's boundary the pid may be
// 0: it serves messages and is no identity.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

// Connects a stream socket to `path`, close-on-exec. Blocks until `deadline` at most.
//   kNotFound: no such socket. kUnavailable: nobody listens on it. kPermissionDenied: its mode.
//   kInvalidArgument: the path is longer than a socket's address holds (107 bytes).
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& path, Clock::time_point deadline);

// A listening, non-blocking, close-on-exec stream socket at `path` with permission bits `mode`. A
// stale socket file that nobody listens on is replaced.
//   kAlreadyExists: another process listens there.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, mode_t mode);

// From now on nobody can send descriptors to this socket, nor to those that it accepts; those of
// kernels before 6.16 are sent as ever, and have to be reckoned with.
void RefuseDescriptors(int socket);

// Two connected stream sockets, close-on-exec.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> UnixSocketPair();

absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket);

// Sends all of `bytes`, with `fds` (at most 8) attached to the first of them. Blocks until
// `deadline` at most. kUnavailable: the peer has gone.
absl::Status SendWithFds(int socket, std::span<const std::byte> bytes, std::span<const int> fds,
                         Clock::time_point deadline);

// Receives exactly bytes.size() bytes and whatever descriptors came with them. Blocks until
// `deadline` at most. kUnavailable: the peer has gone before all bytes came.
absl::StatusOr<std::vector<UniqueFd>> ReceiveWithFds(int socket, std::span<std::byte> bytes,
                                                     Clock::time_point deadline);

}  // namespace ringd

#endif  // RINGD_PROTO_BASE_UNIX_SOCKET_H_
