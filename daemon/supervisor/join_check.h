// What of a Join can be refused without a job, so that the session stays where it is.
#ifndef RINGD_DAEMON_SUPERVISOR_JOIN_CHECK_H_
#define RINGD_DAEMON_SUPERVISOR_JOIN_CHECK_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "daemon/config/config.h"
#include "proto/rpc/client.pb.h"

namespace ringd {

// What this ringd goes by.
struct JoinRules {
  const Config& config;
  std::string peer_address;  // host:port on which other ringds reach this one
  bool has_cluster_key = false;
};

// The longest job secret.
inline constexpr std::size_t kMostSecretBytes = 4096;

// Thread safety: both are functions of what they are given.

// Names, sizes and places. No job can be meant.
//   kInvalidArgument.
absl::Status CheckPlaces(const v1::JoinRequest& request);

// The rest: what the rank asks for, and for a job over several nodes an address that other nodes
// reach, and a key that strangers lack, unless the operator does without. Names all that is missing
// at once. The job, if there is one, is to be told. Requirement: CheckPlaces finds nothing.
//   kInvalidArgument: the rank may not ask for that.
//   kFailedPrecondition: this ringd lacks something.
absl::Status CheckJoin(const v1::JoinRequest& request, const JoinRules& rules);

}  // namespace ringd

#endif  // RINGD_DAEMON_SUPERVISOR_JOIN_CHECK_H_
