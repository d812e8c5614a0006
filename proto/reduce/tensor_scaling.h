// By what the elements of one tensor of a job are multiplied, and when.
#ifndef RINGD_PROTO_REDUCE_TENSOR_SCALING_H_
#define RINGD_PROTO_REDUCE_TENSOR_SCALING_H_

#include "proto/reduce/reduce.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// The scalings of one tensor of a job.
struct TensorScaling {
  double prescale = 1.0;  // of each rank's elements, before they are combined
  Scaling result;

  bool operator==(const TensorScaling&) const = default;
};

// What the user's factors become, with the division of an average over `rank_count` ranks.
//
// The total is divided where it can be: of integers the quotient is exact then. But what travels
// between nodes is rounded to the tensor's type, and the sum of all ranks may be too large for
// float16 and float8 where the average is not. So of those each element is divided before it is
// combined (as NCCL's ncclAvg and torch's DistributedDataParallel do), by the least power of two
// that is enough, to which a prescale that divides counts: that costs no bits, but of numbers that
// get less than the type's least normal number. The total is multiplied by what was divided too
// much. All nodes and ranks must compute it alike: see kPeerProtocolVersion, and
// kRankExchangeSegmentVersion.
TensorScaling ScalingOf(DataType type, ReduceOp op, double prescale, double postscale,
                        int rank_count, bool several_nodes) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_TENSOR_SCALING_H_
