// Between the scheduler's messages and their form on the wire.
//
// What comes from the wire is input: FromProto checks every number, count and name, and either
// gives a message that the scheduler may rely on or an error that names the field. What it can't
// check is what only the job knows: whether a rank lives on the sending node, and whether a channel
// exists.
#ifndef RINGD_DAEMON_PEERS_SCHEDULE_CONVERSION_H_
#define RINGD_DAEMON_PEERS_SCHEDULE_CONVERSION_H_

#include "absl/status/statusor.h"
#include "daemon/schedule/protocol/messages.h"
#include "daemon/schedule/protocol/tensor_meta.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

v1::NodeMessage ToProto(const NodeMessage& message);
v1::CoordinatorMessage ToProto(const CoordinatorMessage& message);
v1::TensorMeta ToProto(const TensorMeta& meta);

// True if the body is one of the scheduler's (ready, break, frozen; execute, fail_tensor, schedule,
// freeze, retire). The other bodies belong to the job.
bool IsSchedulingMessage(const v1::NodeMessage& message) noexcept;
bool IsSchedulingMessage(const v1::CoordinatorMessage& message) noexcept;

// kInvalidArgument: no scheduling message, or one that no sound peer would send.
absl::StatusOr<NodeMessage> FromProto(const v1::NodeMessage& message);
absl::StatusOr<CoordinatorMessage> FromProto(const v1::CoordinatorMessage& message);

// kInvalidArgument: unknown kind, data type or operator, negative dimension, more elements than can
// be addressed, a scale that is not finite, a negative root.
absl::StatusOr<TensorMeta> FromProto(const v1::TensorMeta& meta);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_SCHEDULE_CONVERSION_H_
