// Which of this node's jobs a node means that says Hello.
#ifndef RINGD_DAEMON_JOBS_MEMBERSHIP_HELLO_MATCH_H_
#define RINGD_DAEMON_JOBS_MEMBERSHIP_HELLO_MATCH_H_

#include <sys/types.h>

#include <cstddef>
#include <span>

#include "absl/strings/string_view.h"
#include "proto/door/door_key.h"
#include "proto/rpc/peer.pb.h"

namespace ringd {

// A job of this node that has the Hello's job id and still gathers its ranks.
struct GatheringJob {
  uid_t uid = 0;
  DoorKey key{};               // KeyForControl of the job's key
  bool has_secret = false;     // the ranks have brought one
  bool one_node_only = false;  // all its ranks are here
};

struct HelloMatch {
  // The better ones first.
  enum class Outcome {
    kMember,       // it has shown that it belongs to `job`
    kWrongKey,     // it means `job`, which is its user's, as it says, but has another key
    kOneNodeOnly,  // it means `job`, which is its user's, as it says, and admits no other node
    kAnotherUser,  // as kNotYet; without secrets, `job` would be its own if it were its user's
    kNotYet,       // its user's ranks may still come to this node
  };
  Outcome outcome = Outcome::kNotYet;
  std::size_t job = 0;  // index into `jobs`; meaningless if kNotYet
};

// Jobs of several users may have one id, and their ranks may come in any order: a node is never measured
// by another user's secret. A user's number is the node's word, and not every site gives a user the same
// one on all nodes: who knows a secret belongs to its job all the same. Without a secret only ranks of one
// number come together. `nonce` is the coordinator's. A job that is coordinated elsewhere is not among
// `jobs`: its node answers no Hello, or it could be led to itself.
HelloMatch MatchHello(std::span<const GatheringJob> jobs, const v1::Hello& hello,
                      absl::string_view nonce);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_MEMBERSHIP_HELLO_MATCH_H_
