// Finds the link model that explains measured all-reduces.
//
// Thread safety: pure functions; any thread.
#ifndef RINGD_DAEMON_SCHEDULE_LINK_LINK_FIT_H_
#define RINGD_DAEMON_SCHEDULE_LINK_LINK_FIT_H_

#include <vector>

#include "daemon/schedule/link/link_model.h"
#include "daemon/schedule/link/measurements.h"

namespace ringd {

// Latency and bandwidth for which rounds x latency + line bytes / bandwidth comes nearest to the
// observed times: least squares of their logarithms' errors, with outliers weighed down. What the
// observations do not determine (the latency, if all operations were large) stays near `start`,
// which should therefore be what is known from elsewhere, not the last fit: from fit to fit it
// would drift away. All else is taken from `start`. Observations without bytes or time are ignored.
LinkModel FitLink(const std::vector<LinkObservation>& observations, const LinkModel& start);

// One observation per size class (a power of two) from those of all nodes: the one with the least
// time per byte, since waiting for others makes an operation look slow, and nothing makes it look
// fast.
std::vector<LinkObservation> MergeObservations(
    const std::vector<std::vector<LinkObservation>>& by_node);

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_LINK_LINK_FIT_H_
