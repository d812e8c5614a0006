// The lane of operations that ringd carries out: over several nodes.
#ifndef RINGD_CLIENT_CORE_LANES_WIRE_WIRE_LANE_H_
#define RINGD_CLIENT_CORE_LANES_WIRE_WIRE_LANE_H_

#include "client/core/lanes/lane.h"
#include "client/core/lanes/wire/ringd_operations.h"

namespace ringd::client {

// All tensors go by way of the arena; ringd works on large ones while they are copied.
class WireLane final : public Lane {
 public:
  WireLane(RingdOperations& operations, Staging& staging, const SessionState& state)
      : Lane(operations, staging, state), operations_(operations) {}

 private:
  absl::Status Place(Registration& tensor, const void*& source, void*& destination,
                     Submission& record, OperationEnd& end) override {
    return staging().Place(tensor, source, destination, record, end, DirectUse{.in_pieces = true});
  }
  SubmitResult TrySubmit(Registration& /*tensor*/, const void* /*source*/, void* /*destination*/,
                         Submission& record, const OperationEnd& end) override {
    const SubmitResult result = operations_.TrySubmit(record, end);
    if (result == SubmitResult::kOk && end.staged_from != nullptr) operations_.CopySource(end);
    return result;
  }

  RingdOperations& operations_;
};

}  // namespace ringd::client

#endif  // RINGD_CLIENT_CORE_LANES_WIRE_WIRE_LANE_H_
