// Ranks on nodes, one behind the other.
#ifndef RINGD_TESTS_DAEMON_EXECUTION_RANKS_BY_NODE_H_
#define RINGD_TESTS_DAEMON_EXECUTION_RANKS_BY_NODE_H_

#include <vector>

#include "daemon/execution/bucket_layout.h"

namespace ringd {

// So many ranks on each node: rank 0 and the next on the first one, and so on.
inline RanksByNode ConsecutiveRanks(const std::vector<int>& counts) {
  RanksByNode ranks;
  int next = 0;
  for (const int count : counts) {
    auto& on_node = ranks.emplace_back();
    for (int i = 0; i < count; ++i) on_node.emplace_back(next++);
  }
  return ranks;
}

}  // namespace ringd

#endif  // RINGD_TESTS_DAEMON_EXECUTION_RANKS_BY_NODE_H_
