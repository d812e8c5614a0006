// The lane of ranks that are all on one node: they combine their tensors themselves.
#ifndef RINGD_CLIENT_CORE_LANES_NODE_NODE_LANE_H_
#define RINGD_CLIENT_CORE_LANES_NODE_NODE_LANE_H_

#include "client/core/lanes/lane.h"
#include "client/core/lanes/node/local_operations.h"

namespace ringd::client {

// Small tensors travel in their slots, from and to memory of any kind; of large ones in ordinary
// memory, other ranks read a part where it is.
class NodeLane final : public Lane {
 public:
  NodeLane(LocalOperations& operations, Staging& staging, const SessionState& state)
      : Lane(operations, staging, state), operations_(operations) {}

 private:
  absl::Status Place(Registration& tensor, const void*& source, void*& destination,
                     Submission& record, OperationEnd& end) override {
    if (LocalOperations::IsInline(tensor)) {
      return Staging::CheckPointers(tensor, source, destination);
    }
    return staging().Place(tensor, source, destination, record, end,
                           operations_.DirectUseOf(tensor));
  }
  SubmitResult TrySubmit(Registration& tensor, const void* source, void* destination,
                         Submission& record, const OperationEnd& end) override {
    return LocalOperations::IsInline(tensor)
               ? operations_.SubmitInline(tensor, source, destination, record.sequence)
               : operations_.TrySubmit(record, end);
  }

  LocalOperations& operations_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_NODE_NODE_LANE_H_
