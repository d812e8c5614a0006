// A communicator for which a rank of this node waits, until all its ranks have asked for it.
#ifndef RINGD_DAEMON_JOBS_AWAITED_COMMUNICATOR_H_
#define RINGD_DAEMON_JOBS_AWAITED_COMMUNICATOR_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/clock.h"
#include "proto/rpc/client.pb.h"

namespace ringd {

using CreateCommunicatorCallback =
    std::function<void(const absl::Status&, const v1::CreateCommunicatorReply&)>;

struct AwaitedCommunicator {
  int rank = 0;  // which waits
  std::string name;
  std::vector<int> ranks;
  bool by_order = false;
  CreateCommunicatorCallback done;         // called once
  std::optional<Clock::time_point> since;  // the first tick after it
  std::chrono::nanoseconds told_after{};   // the last warning
};

}  // namespace ringd

#endif  // RINGD_DAEMON_JOBS_AWAITED_COMMUNICATOR_H_
