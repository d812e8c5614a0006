// A communicator's plan in words and figures for people.
#ifndef RINGD_DAEMON_JOBS_PLANS_PLAN_DESCRIPTION_H_
#define RINGD_DAEMON_JOBS_PLANS_PLAN_DESCRIPTION_H_

#include <string>

#include "daemon/jobs/plans/plan_file.h"
#include "daemon/schedule/coordinator/coordinator.h"
#include "daemon/schedule/coordinator/plan_tuner.h"
#include "daemon/schedule/planning/fusion_policy.h"
#include "proto/rpc/plan.pb.h"

namespace ringd {

// "learned", "pinned", "off", or the number of bytes.
std::string Name(const FusionPolicy& policy);

// What the coordinator tells the nodes: all but what each measures for itself.
v1::Plan DescribePlan(const CoordinatorStatus& status, const PlanTuner& tuner,
                      const FusionPolicy& policy);

// Where flat_all_reduce_bytes comes from: whether it was ringd's choice, and then from what.
void DescribeFlat(bool chosen, const StoredTrial& tried, v1::LinkFigures& link);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_PLANS_PLAN_DESCRIPTION_H_
