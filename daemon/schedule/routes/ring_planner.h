// In which order a ring should pass through its nodes.
//
// Pure code.
#ifndef RINGD_DAEMON_SCHEDULE_ROUTES_RING_PLANNER_H_
#define RINGD_DAEMON_SCHEDULE_ROUTES_RING_PLANNER_H_

#include <cstddef>
#include <vector>

#include "daemon/schedule/routes/link_matrix.h"

namespace ringd {

// The order of nodes 0 .. n-1, beginning with 0. An edge costs the time that a chunk takes on it.
// The chunks of a ring follow one another, so its slowest edge sets the pace: the ring with the
// fastest slowest edge is wanted, and of those that are no more than 10 % behind it in this (nor
// behind the order of ranks) the one with the least sum: of the rings through two racks joined by a
// slow line, one that crosses it once each way.
//
// The order of ranks (0, 1, .. n-1) stays unless another one is better by more than 10 %, in its
// slowest edge or, with no slower one, in the sum. Edges within a factor of 1.5 or 50 µs of the
// median count as equal: so much differs without a cause in the lines.
//
// Up to 12 nodes the answer is exact (M. Held, R. Karp: A dynamic programming approach to
// sequencing problems, J. SIAM 10, 1962; first for the slowest edge, then for the sum). Beyond that
// it is the best of nearest-neighbour tours from every node and the order of ranks, improved by
// moving short segments and reversing segments as long as that helps: some ms for 64 nodes. Equal
// input gives equal output.
std::vector<std::size_t> PlanRing(const LinkMatrix& links, std::size_t chunk_bytes);

// What two measurements of the same links agree on: of each link the figures that are nearer to
// what most links are like. A link that only one of them found to be slow or fast becomes an
// ordinary one.
LinkMatrix AgreedLinks(const LinkMatrix& first, const LinkMatrix& second, std::size_t chunk_bytes);

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_ROUTES_RING_PLANNER_H_
