// How simulated nodes come to a real JobCoordinator.
#ifndef RINGD_TESTS_SIMULATION_JOINING_H_
#define RINGD_TESTS_SIMULATION_JOINING_H_

#include <vector>

#include "daemon/jobs/coordinator/job_coordinator.h"
#include "daemon/jobs/membership/membership.h"
#include "daemon/schedule/protocol/schedule_time.h"
#include "proto/types/ids.h"

namespace ringd::simulation {

// Node `node`'s stream.
LinkId LinkOf(int node);
int NodeOf(LinkId link);

// A node with `count` ranks, of which `first` is the first.
MemberNode DescribeNode(int node, int first, int count);

// Lets all ranks of all nodes join. False: the job has not started.
bool JoinAll(JobCoordinator& coordinator, const std::vector<MemberNode>& nodes, TimePoint now);

// Of thousands of jobs nobody wants to read the daemon's words.
void QuietLog();

}  // namespace ringd::simulation

#endif  // RINGD_TESTS_SIMULATION_JOINING_H_
