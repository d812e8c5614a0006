// Between a node's measurements and their form on the wire.
#ifndef RINGD_DAEMON_PEERS_MEASUREMENT_CONVERSION_H_
#define RINGD_DAEMON_PEERS_MEASUREMENT_CONVERSION_H_

#include "absl/status/statusor.h"
#include "daemon/schedule/measurements.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

v1::NodeMessage ToProto(const NodeMeasurements& measurements);
// kInvalidArgument: a name or a number that no sound peer would send.
absl::StatusOr<NodeMeasurements> FromProto(const v1::Measurements& message);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_MEASUREMENT_CONVERSION_H_
