// Why two ringds have different keys for one job, in words.
#ifndef RINGD_PROTO_DOOR_KEY_DIFFERENCE_H_
#define RINGD_PROTO_DOOR_KEY_DIFFERENCE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace ringd {

// A ringd, as an error names it.
struct KeyHolder {
  absl::string_view node_name;
  bool has_cluster_key = false;  // as it says
};

// The likely reason, as a clause: "the ringd on node-b has no cluster key (cluster_key_file), the
// ringd on node-a has one".
//
// Thread safety: any thread.
std::string DescribeKeyDifference(const KeyHolder& theirs, const KeyHolder& ours);

}  // namespace ringd

#endif  // RINGD_PROTO_DOOR_KEY_DIFFERENCE_H_
