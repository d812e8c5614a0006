#include "proto/door/key_difference.h"

#include "absl/strings/str_cat.h"

namespace ringd {
namespace {

constexpr char kOneFile[] = "; all nodes need the same key file, which ringd reads when it starts";

}  // namespace

std::string DescribeKeyDifference(const KeyHolder& theirs, const KeyHolder& ours) {
  if (!theirs.has_cluster_key && !ours.has_cluster_key) {
    return absl::StrCat("the job secret (RINGD_JOB_SECRET) of the ranks on ", theirs.node_name,
                        " differs from that of the ranks on ", ours.node_name);
  }
  if (theirs.has_cluster_key && ours.has_cluster_key) {
    return absl::StrCat("the ringd on ", theirs.node_name,
                        " has another cluster key (cluster_key_file) than the ringd on ",
                        ours.node_name, ", or its ranks another job secret (RINGD_JOB_SECRET)",
                        kOneFile);
  }
  return absl::StrCat("the ringd on ", theirs.node_name, " has ",
                      theirs.has_cluster_key ? "a" : "no",
                      " cluster key (cluster_key_file), the ringd on ", ours.node_name, " has ",
                      ours.has_cluster_key ? "one" : "none", kOneFile);
}

}  // namespace ringd
