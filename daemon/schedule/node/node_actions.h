// What a NodeScheduler tells its engine to do.
#ifndef RINGD_DAEMON_SCHEDULE_NODE_NODE_ACTIONS_H_
#define RINGD_DAEMON_SCHEDULE_NODE_NODE_ACTIONS_H_

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "daemon/schedule/protocol/messages.h"
#include "proto/types/ids.h"

namespace ringd {

// A tensor name as this NodeScheduler numbers it; meaningless to others.
using TensorHandle = StrongId<struct TensorHandleTag, std::uint32_t>;
// Shared so that the same list object is handed out for each occurrence of a bucket: the engine may
// compare the pointer to reuse what it computed for it.
using TensorList = std::shared_ptr<const std::vector<TensorHandle>>;

// What the engine has to do, in this order.
struct SendToCoordinator {
  NodeMessage message;
};
struct StartOperation {
  OperationId operation;
  TensorList tensors;
};
// Stop and forget a started operation. Its tensors stay ready; they will be started again as part
// of another operation.
struct CancelOperation {
  OperationId operation;
};
// The tensor's current occurrence ends with this error on all ranks.
struct TensorFailed {
  TensorHandle tensor;
  absl::Status status;
};
// Data that belongs to occurrences from `final_count` on is stale: drop it, also what comes later.
struct ChannelRetired {
  std::uint32_t channel = 0;
  std::uint32_t final_count = 0;
};
using Action =
    std::variant<SendToCoordinator, StartOperation, CancelOperation, TensorFailed, ChannelRetired>;

}  // namespace ringd

#endif  // RINGD_DAEMON_SCHEDULE_NODE_NODE_ACTIONS_H_
