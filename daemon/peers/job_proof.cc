#include "daemon/peers/job_proof.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/door/hmac.h"

namespace ringd {
namespace {

void AppendField(absl::string_view field, std::string& out) {
  const auto length = static_cast<std::uint32_t>(field.size());
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(length >> shift));
  }
  out.append(field.data(), field.size());
}

std::string Prove(absl::string_view label, const DoorKey& key, const JobProofSubject& subject) {
  std::string input;
  for (const absl::string_view field :
       {label, subject.coordinator_nonce, subject.node_nonce, subject.job_id, subject.node_name}) {
    AppendField(field, input);
  }
  return std::string(AsText(HmacSha256(AsText(key), input)));
}

}  // namespace

std::string NodeProof(const DoorKey& control_key, const JobProofSubject& subject) {
  return Prove("ringd peer node 1", control_key, subject);
}

std::string CoordinatorProof(const DoorKey& control_key, const JobProofSubject& subject) {
  return Prove("ringd peer coordinator 1", control_key, subject);
}

std::string DescribeKeyDifference(const KeyHolder& theirs, const KeyHolder& ours) {
  if (!theirs.has_cluster_key && !ours.has_cluster_key) {
    return absl::StrCat("the job secret (RINGD_JOB_SECRET) of the ranks on ", theirs.node_name,
                        " differs from that of the ranks on ", ours.node_name);
  }
  if (theirs.has_cluster_key && ours.has_cluster_key) {
    return absl::StrCat("the ringd on ", theirs.node_name,
                        " has another cluster key (cluster_key_file) than the ringd on ",
                        ours.node_name, ", or its ranks another job secret (RINGD_JOB_SECRET)");
  }
  return absl::StrCat("the ringd on ", theirs.node_name, " has ",
                      theirs.has_cluster_key ? "a" : "no",
                      " cluster key (cluster_key_file), the ringd on ", ours.node_name, " has ",
                      ours.has_cluster_key ? "one" : "none");
}

}  // namespace ringd
