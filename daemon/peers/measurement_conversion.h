// Between a node's measurements and their form on the wire.
#ifndef RINGD_DAEMON_PEERS_MEASUREMENT_CONVERSION_H_
#define RINGD_DAEMON_PEERS_MEASUREMENT_CONVERSION_H_

#include <google/protobuf/repeated_field.h>

#include <vector>

#include "absl/status/statusor.h"
#include "daemon/schedule/link/measurements.h"
#include "daemon/schedule/routes/all_reduce_times.h"
#include "proto/rpc/peer.pb.h"
#include "proto/rpc/plan.pb.h"

namespace ringd {

v1::NodeMessage ToProto(const NodeMeasurements& measurements);
// kInvalidArgument: a name or a number that no sound peer would send.
absl::StatusOr<NodeMeasurements> FromProto(const v1::Measurements& message);

v1::AllReduceTimes ToProto(const AllReduceTimes& times);
// kInvalidArgument: sizes that are not the first of kTriedBytes, or times that nobody can have
//   measured.
absl::StatusOr<std::vector<AllReduceTimes>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::AllReduceTimes>& messages);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_MEASUREMENT_CONVERSION_H_
