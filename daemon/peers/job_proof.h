// How a node and the coordinator of its job show each other that both know the job's key, without sending it.
//
// Each side draws a nonce for the stream: the coordinator's is in its Challenge, the node's in its Hello. The
// node proves first. A proof is good for one stream and one direction only.
//
// Thread safety: any thread.
#ifndef RINGD_DAEMON_PEERS_JOB_PROOF_H_
#define RINGD_DAEMON_PEERS_JOB_PROOF_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/door/door_key.h"

namespace ringd {

inline constexpr std::size_t kJobNonceBytes = 32;
inline constexpr std::size_t kJobProofBytes = 32;

// What both proofs of a stream are about. Borrows.
struct JobProofSubject {
  absl::string_view coordinator_nonce;
  absl::string_view node_nonce;
  absl::string_view job_id;
  absl::string_view node_name;  // the node's, not the coordinator's
};

// HMAC-SHA256 under KeyForControl of the job's key. The input is the side's label, "ringd peer node 1" or
// "ringd peer coordinator 1", and the subject's fields in their order, each preceded by its length as four
// bytes, big endian, so that no two subjects give the same input.
std::string NodeProof(const DoorKey& control_key, const JobProofSubject& subject);
std::string CoordinatorProof(const DoorKey& control_key, const JobProofSubject& subject);

// A ringd, as an error names it.
struct KeyHolder {
  absl::string_view node_name;
  bool has_cluster_key = false;  // as it says
};

// The likely reason why the keys of two ringds for one job differ, as a clause.
std::string DescribeKeyDifference(const KeyHolder& theirs, const KeyHolder& ours);

}  // namespace ringd

#endif  // RINGD_DAEMON_PEERS_JOB_PROOF_H_
