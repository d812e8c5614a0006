// A communicator's plan in words and figures for people.
#ifndef RINGD_DAEMON_JOBS_PLAN_DESCRIPTION_H_
#define RINGD_DAEMON_JOBS_PLAN_DESCRIPTION_H_

#include <string>

#include "daemon/schedule/coordinator.h"
#include "daemon/schedule/fusion_policy.h"
#include "daemon/schedule/plan_tuner.h"
#include "proto/rpc/plan.pb.h"

namespace ringd {

// "learned", "pinned", "off", or the number of bytes.
std::string Name(const FusionPolicy& policy);

// What the coordinator tells the nodes: all but what each measures for itself.
v1::Plan DescribePlan(const CoordinatorStatus& status, const PlanTuner& tuner,
                      const FusionPolicy& policy);

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_PLAN_DESCRIPTION_H_
