// What `ringctl comms --plan` shows: why tensors travel together as they do.
#ifndef RINGD_CLIENT_CLI_VIEWS_PLAN_VIEW_H_
#define RINGD_CLIENT_CLI_VIEWS_PLAN_VIEW_H_

#include <string>

#include "client/cli/views/table.h"
#include "proto/rpc/admin.pb.h"

namespace ringd::cli {

// Of each communicator the buckets with predicted and measured times, the link's figures behind
// them, and what other plans would have cost.
std::string RenderPlans(const v1::CommunicatorsReply& reply, const Look& look);

// One line for the general view: "measured, 45 us and 0.93 Gbit/s".
std::string DescribeLink(const v1::LinkFigures& link);

// Milliseconds with three digits: "0.042 ms", "12.3 ms".
std::string HumanMilliseconds(double ms);

}  // namespace ringd::cli

#endif  // RINGD_CLIENT_CLI_VIEWS_PLAN_VIEW_H_
