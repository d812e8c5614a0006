#include "daemon/peers/job_proof.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proto/door/hmac.h"

namespace ringd {
namespace {

using Catch::Matchers::Contains;

DoorKey SomeKey() { return KeyForControl(JobKey("cluster", "job", "secret")); }

TEST_CASE("NodeProof and CoordinatorProof: are the HMAC of label and fields with their lengths") {
  const std::string fields("\0\0\0\1c\0\0\0\1n\0\0\0\3job\0\0\0\6node-a", 27);
  const std::string node = std::string("\0\0\0\x11ringd peer node 1", 21) + fields;
  const std::string coordinator = std::string("\0\0\0\x18ringd peer coordinator 1", 28) + fields;
  const JobProofSubject subject{"c", "n", "job", "node-a"};
  CHECK(NodeProof(SomeKey(), subject) == AsText(HmacSha256(AsText(SomeKey()), node)));
  CHECK(CoordinatorProof(SomeKey(), subject) == AsText(HmacSha256(AsText(SomeKey()), coordinator)));
  CHECK(NodeProof(SomeKey(), subject).size() == kJobProofBytes);
}

TEST_CASE("NodeProof: differs when anything differs, also where the fields meet") {
  const DoorKey other = KeyForControl(JobKey("", "job", "secret"));
  const std::set<std::string> proofs = {
      NodeProof(SomeKey(), {"cc", "nn", "job", "node"}),
      NodeProof(SomeKey(), {"c", "cnn", "job", "node"}),
      NodeProof(SomeKey(), {"cc", "n", "njob", "node"}),
      NodeProof(SomeKey(), {"cc", "nn", "jobn", "ode"}),
      NodeProof(SomeKey(), {"nn", "cc", "job", "node"}),
      NodeProof(SomeKey(), {"cc", "nn", "job", "nod"}),
      NodeProof(other, {"cc", "nn", "job", "node"}),
      CoordinatorProof(SomeKey(), {"cc", "nn", "job", "node"}),
  };
  CHECK(proofs.size() == 8);
}

TEST_CASE("DescribeKeyDifference: says who has a cluster key, or that secrets may differ") {
  CHECK_THAT(DescribeKeyDifference({"node-b", false}, {"node-a", true}),
             Contains("ringd on node-b has no cluster key (cluster_key_file)"));
  CHECK_THAT(DescribeKeyDifference({"node-b", true}, {"node-a", false}),
             Contains("the ringd on node-a has none"));
  CHECK_THAT(DescribeKeyDifference({"node-b", true}, {"node-a", true}),
             Contains("node-b has another cluster key") && Contains("RINGD_JOB_SECRET"));
  CHECK_THAT(DescribeKeyDifference({"node-b", false}, {"node-a", false}),
             Contains("RINGD_JOB_SECRET") && !Contains("cluster"));
}

}  // namespace
}  // namespace ringd
