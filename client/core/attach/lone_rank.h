// A rank that is alone and has no ringd: what ringd would give it, made in its own process.
#ifndef RINGD_CLIENT_CORE_ATTACH_LONE_RANK_H_
#define RINGD_CLIENT_CORE_ATTACH_LONE_RANK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/core/attach/attachment.h"
#include "client/core/attach/control_channel.h"
#include "proto/attach/handshake.h"
#include "proto/base/unique_fd.h"

namespace ringd::client {

// The parts of a context for a job of one rank. They look as if a ringd had made them, so that a
// program finds every function and every check as in a larger job.
//
// Ownership: the parts own their memory; nobody else has it.
struct LoneRank {
  // Its lifeline leads nowhere: nobody speaks on it, and it never hangs up.
  Attachment attachment;
  // Numbers tensors by itself. Thread safety: as ControlChannel. Blocking: never.
  std::unique_ptr<ControlChannel> control;
  JobSegmentNotice notice{};
  UniqueFd job_segment;
};

// The arena may take as much memory as the machine has; pages come into being when they are
// touched.
//   kResourceExhausted: a limit of this process stands against it.
absl::StatusOr<LoneRank> MakeLoneRank();

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_ATTACH_LONE_RANK_H_
