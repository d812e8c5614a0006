// The keys of the door's handshake, and what is proved with them.
#ifndef RINGD_PROTO_DOOR_DOOR_KEY_H_
#define RINGD_PROTO_DOOR_DOOR_KEY_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/door/door_message.h"
#include "proto/door/hmac.h"

namespace ringd {

using DoorKey = Sha256Digest;

// No key travels. A job's key is made of the cluster's key and the job's secret, of which either
// may be empty; with both empty it is no secret. Each purpose has a key of its own, so that what
// one of them gives away is of no use to another.
//
//   job       HMAC(cluster key, "ringd job 2" || length of job id || job id || length of secret ||
//             secret || user)
//   control   HMAC(job, "control")
//   wire      HMAC(job, "wire" || wire id)
//   exchange  HMAC(job, "exchange" || wire id)
//
// with lengths of 32 and ids of 64 bits, little-endian. `user` is the number of the ranks' user, in
// 32 bits, and nothing if there is a secret: who knows the secret belongs to the job, also at a
// site where a user's number differs from node to node.
//
// Thread safety: any thread, as below.
DoorKey JobKey(absl::string_view cluster_key, absl::string_view job_id, absl::string_view secret,
               std::uint32_t uid);
DoorKey KeyForControl(const DoorKey& job) noexcept;
DoorKey KeyForWire(const DoorKey& job, std::uint64_t wire_id) noexcept;
DoorKey KeyForExchange(const DoorKey& job, std::uint64_t wire_id) noexcept;

// Proofs are over all bytes of Hello and Challenge as they were sent.
//
//   dialler   HMAC(key, "ringd door dialler 1" || Hello || Challenge)
//   answerer  HMAC(key, "ringd door answerer 1" || Hello || Challenge || verdict)
//   session   HMAC(key, "ringd door session 1" || Hello || Challenge): known to both, never sent
Sha256Digest DiallerProof(const DoorKey& key, const DoorHelloBytes& hello,
                          const DoorChallengeBytes& challenge) noexcept;
Sha256Digest AnswererProof(const DoorKey& key, const DoorHelloBytes& hello,
                           const DoorChallengeBytes& challenge, DoorVerdict verdict) noexcept;
DoorKey SessionKey(const DoorKey& key, const DoorHelloBytes& hello,
                   const DoorChallengeBytes& challenge) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_DOOR_KEY_H_
