#include "daemon/peers/job_proof.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proto/door/hmac.h"

namespace ringd {

TEST_CASE("ComputeJobProof: is the HMAC of the fields with their lengths") {
  const std::string input = std::string("\0\0\0\1n\0\0\0\3job\0\0\0\6node-a", 22);
  CHECK(ComputeJobProof("secret", "n", "job", "node-a") == AsText(HmacSha256("secret", input)));
  CHECK(ComputeJobProof("secret", "n", "job", "node-a").size() == kJobProofBytes);
}

TEST_CASE("ComputeJobProof: differs when anything differs, also where the fields meet") {
  std::set<std::string> proofs = {
      ComputeJobProof("s", "nonce", "job", "node"), ComputeJobProof("S", "nonce", "job", "node"),
      ComputeJobProof("s", "nonc", "ejob", "node"), ComputeJobProof("s", "nonce", "jobn", "ode"),
      ComputeJobProof("s", "nonce", "job", "nod"),  ComputeJobProof("", "nonce", "job", "node"),
  };
  CHECK(proofs.size() == 6);
}

}  // namespace ringd
