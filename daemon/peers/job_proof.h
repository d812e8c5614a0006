// How a node shows that it knows a job's secret without sending it.
//
// The coordinator sends a fresh random nonce; the node answers with an HMAC over the nonce, the job and
// its own name. A proof is good for one stream only.
#ifndef RINGD_DAEMON_PEERS_JOB_PROOF_H_
#define RINGD_DAEMON_PEERS_JOB_PROOF_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ringd {

inline constexpr std::size_t kJobNonceBytes = 32;
inline constexpr std::size_t kJobProofBytes = 32;

// HMAC-SHA256 under `secret` of nonce, job id and node name, each preceded by its length as four bytes,
// big endian, so that no two triples give the same input. An empty secret is a secret like any other.
std::string ComputeJobProof(absl::string_view secret, absl::string_view nonce,
                            absl::string_view job_id, absl::string_view node_name);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_JOB_PROOF_H_
