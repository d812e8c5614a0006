// The first words with ringd: a connection becomes shared memory and descriptors.
#ifndef RINGD_CLIENT_CORE_ATTACH_ATTACHMENT_H_
#define RINGD_CLIENT_CORE_ATTACH_ATTACHMENT_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/clock.h"
#include "proto/base/memory_mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/shm/session_segment.h"

namespace ringd::client {

// Everything that a successful attach gives.
struct Attachment {
  UniqueFd lifeline;
  UniqueFd engine_wakeup;
  UniqueFd grpc;
  MemoryMapping segment;
  MemoryMapping arena;
  // Checked, and copied out of the segment's header.
  SessionSegmentLayout layout;
  std::uint32_t session = 0;
  std::string token;
  pid_t ringd_pid = 0;  // 0: unknown (behind a container's boundary)
};

// Attaches to the ringd that listens on `socket`. Blocks until `deadline` at most. Errors name the
// socket and what to do:
//   kNotFound, kUnavailable: there is no ringd; the message ends with `advice`.
//   kPermissionDenied: this user may not attach.
//   kFailedPrecondition: versions differ, or ringd is draining. kDeadlineExceeded: no answer.
// `nobody_there`, if not null: set to whether the error is that there is no ringd at all.
absl::StatusOr<Attachment> AttachToRingd(const std::string& socket, const std::string& advice,
                                         Clock::time_point deadline, bool* nobody_there = nullptr);

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_ATTACHMENT_H_
