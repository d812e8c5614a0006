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
  const std::string proof = ComputeJobProof(job.secret, nonce, hello.job_id(), hello.node_name());
  const bool proven = EqualInConstantTime(proof, hello.proof());
  if (job.uid == hello.uid()) return proven ? Outcome::kMember : Outcome::kWrongSecret;
  if (!proven) return Outcome::kNotYet;
  return job.secret.empty() ? Outcome::kAnotherUser : Outcome::kMember;
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
