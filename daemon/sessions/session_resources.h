// What the attach handshake made for one trainer: all that the kernel holds for the session.
#ifndef RINGD_DAEMON_SESSIONS_SESSION_RESOURCES_H_
#define RINGD_DAEMON_SESSIONS_SESSION_RESOURCES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/base/unix_socket.h"
#include "proto/shm/session_segment.h"
#include "proto/types/ids.h"

namespace ringd {

// Passed from the attach listener to the lobby; at the join its descriptors go to the job's engine,
// which makes another one of them and owns that for the session's life. Destroying it there is the
// end of the session: the client sees its lifeline hang up. Only who reads the memory maps it, with
// MapMemory: what a client writes is nothing to those who hold the session before.
//
// Thread safety: none; it moves from one thread to the next.
// Invariant: `segment_fd` is an initialised, sealed session segment of `layout`; the client may
//   write anything into it at any time, so all facts about it are taken from here.
struct SessionResources {
  // The session's place among those that the limits allow, given back when all else here has gone,
  // and the session's gRPC connection. May be null.
  std::shared_ptr<const void> admission;

  SessionId id;
  std::string token;  // 32 hexadecimal digits; the client's gRPC calls carry it
  PeerCredentials peer;

  UniqueFd lifeline;  // the attach connection, non-blocking: hangs up when the client dies; notices
  UniqueFd pidfd;     // may be invalid (the pid is hidden by a container's boundary, or has gone)
  UniqueFd event_fd;  // readable when the client has rung for the sleeping engine; non-blocking

  UniqueFd segment_fd;
  UniqueFd arena_fd;  // also for the other ranks of a one-node job
  SessionSegmentLayout layout;
  std::uint64_t arena_bytes = 0;
  MemoryMapping segment;  // these two: after MapMemory
  MemoryMapping arena;

  // Maps both, without touching a page. Idempotent.
  //   kInvalidArgument: less memory than `layout` and `arena_bytes` say.
  //   kFailedPrecondition: memory that can be resized.
  //   What the kernel says.
  absl::Status MapMemory();
};

}  // namespace ringd

#endif  // RINGD_DAEMON_SESSIONS_SESSION_RESOURCES_H_
