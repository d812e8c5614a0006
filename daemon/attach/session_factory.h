// Makes what one admitted trainer gets: its memory, its bell, its gRPC connection, its token.
#ifndef RINGD_DAEMON_ATTACH_SESSION_FACTORY_H_
#define RINGD_DAEMON_ATTACH_SESSION_FACTORY_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/sessions/session_resources.h"
#include "proto/attach/handshake.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"
#include "proto/types/ids.h"

namespace ringd {

struct SessionSizes {
  std::uint64_t arena_bytes = 0;
  std::uint32_t submission_capacity = 0;  // a power of two
};

struct NewSession {
  std::unique_ptr<SessionResources> resources;     // without lifeline and admission
  UniqueFd grpc_server_end;                        // for the gRPC server, non-blocking
  AttachReply reply;                               // accepting
  std::array<UniqueFd, kAttachFdCount> reply_fds;  // by AttachFd
};

// `connection` is the trainer's, of which only the identity is taken.
//   kResourceExhausted: too many open files, or no memory.
absl::StatusOr<NewSession> MakeSession(SessionId id, const SessionSizes& sizes,
                                       const PeerCredentials& peer, int connection);

}  // namespace ringd

#endif  // RINGD_DAEMON_ATTACH_SESSION_FACTORY_H_
