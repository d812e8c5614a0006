// In which order a job's ring passes through its nodes.
#ifndef RINGD_DAEMON_JOBS_COORDINATOR_RING_ORDER_H_
#define RINGD_DAEMON_JOBS_COORDINATOR_RING_ORDER_H_

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace ringd {

// Puts `nodes` (pointers to something with a name, the one with rank 0 first) into ring order:
// those named in `wanted` as they stand there, then the others as they were. A ring begins
// anywhere, so it is turned until the first node is the first again. Names that no node has are
// skipped: one list serves many jobs.
template <typename NodePointer>
void OrderRing(const std::vector<std::string>& wanted, std::vector<NodePointer>& nodes) {
  if (wanted.empty() || nodes.empty()) return;
  const NodePointer first = nodes.front();
  const auto place = [&](NodePointer node) {
    return std::find(wanted.begin(), wanted.end(), node->name) - wanted.begin();
  };
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](NodePointer a, NodePointer b) { return place(a) < place(b); });
  std::rotate(nodes.begin(), std::find(nodes.begin(), nodes.end(), first), nodes.end());
}

// What people should know of a job of these nodes where they have set `wanted`, behind the
// setting's name: "does not name node-c, ...". Empty if all is in order: a list for a whole cluster
// names many nodes that a job has not, but it should name all those that the job has.
std::string DescribeMisfit(const std::vector<std::string>& wanted,
                           const std::vector<std::string>& nodes);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_COORDINATOR_RING_ORDER_H_
