#include "daemon/peers/job_proof.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "daemon/peers/secure_random.h"

namespace ringd {
namespace {

std::string Hex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

}  // namespace

TEST_CASE("HmacSha256: gives the vectors of RFC 4231") {
  CHECK(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(Hex(HmacSha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(Hex(HmacSha256(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("HmacSha256: an empty key and empty data are allowed") {
  CHECK(Hex(HmacSha256("", "")) ==
        "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("ComputeJobProof: is the HMAC of the fields with their lengths") {
  const std::string input = std::string("\0\0\0\1n\0\0\0\3job\0\0\0\6node-a", 22);
  CHECK(ComputeJobProof("secret", "n", "job", "node-a") == HmacSha256("secret", input));
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

TEST_CASE("EqualInConstantTime: compares contents and lengths") {
  CHECK(EqualInConstantTime("abc", "abc"));
  CHECK(EqualInConstantTime("", ""));
  CHECK_FALSE(EqualInConstantTime("abc", "abd"));
  CHECK_FALSE(EqualInConstantTime("abc", "ab"));
  CHECK_FALSE(EqualInConstantTime("", "a"));
}

TEST_CASE("RandomBytes: have the length asked for and do not repeat") {
  CHECK(RandomBytes(0).empty());
  CHECK(RandomBytes(kJobNonceBytes).size() == 32);
  CHECK(RandomBytes(32) != RandomBytes(32));
  const std::string token = RandomHexToken(16);
  CHECK(token.size() == 32);
  CHECK(token.find_first_not_of("0123456789abcdef") == std::string::npos);
}

}  // namespace ringd
