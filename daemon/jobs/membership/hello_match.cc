#include "daemon/jobs/membership/hello_match.h"

#include <string>

#include "daemon/peers/job_proof.h"
#include "proto/door/hmac.h"

namespace ringd {
namespace {

// What one job alone would say.
HelloMatch::Outcome MatchOne(const GatheringJob& job, const v1::Hello& hello,
                             absl::string_view nonce) {
  using Outcome = HelloMatch::Outcome;
  const bool own_user = job.uid == hello.uid();
  if (job.one_node_only) return own_user ? Outcome::kOneNodeOnly : Outcome::kNotYet;
  const std::string proof =
      NodeProof(job.key, {nonce, hello.nonce(), hello.job_id(), hello.node_name()});
  const bool proven = EqualInConstantTime(proof, hello.proof());
  if (own_user) return proven ? Outcome::kMember : Outcome::kWrongKey;
  if (!proven) return Outcome::kNotYet;
  return job.has_secret ? Outcome::kMember : Outcome::kAnotherUser;
}

}  // namespace

HelloMatch MatchHello(std::span<const GatheringJob> jobs, const v1::Hello& hello,
                      absl::string_view nonce) {
  HelloMatch best;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const HelloMatch::Outcome outcome = MatchOne(jobs[i], hello, nonce);
    // The user's own job comes before another one with the same secret.
    if (outcome == HelloMatch::Outcome::kMember && jobs[i].uid == hello.uid()) return {outcome, i};
    if (outcome < best.outcome) best = {outcome, i};
  }
  return best;
}

}  // namespace ringd
