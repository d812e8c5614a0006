// What waits at this node, and for whom.
#ifndef RINGD_DAEMON_LANES_WAITING_SUBMISSION_H_
#define RINGD_DAEMON_LANES_WAITING_SUBMISSION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/schedule/node/node_status.h"
#include "proto/base/clock.h"

namespace ringd {

// What people and the stall inquiry ask about.
struct WaitingSubmission {
  int member = 0;  // position among the local members
  std::string name;
  std::uint64_t bytes = 0;
  Clock::time_point since;
  TensorState state = TensorState::kIdle;  // kIdle: other local ranks have not submitted it
  std::vector<int> absent_members;         // positions of local members that have not
};

}  // namespace ringd

#endif  // RINGD_DAEMON_LANES_WAITING_SUBMISSION_H_
