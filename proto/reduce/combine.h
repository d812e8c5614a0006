// What becomes of one tensor on one node: all local ranks' contributions, scaled, combined, scaled again.
#ifndef RINGD_PROTO_REDUCE_COMBINE_H_
#define RINGD_PROTO_REDUCE_COMBINE_H_

#include <cstddef>
#include <span>

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
// The total is divided where it can be: of integers the quotient is exact then. But what travels between nodes is
// rounded to the tensor's type, and the sum of all ranks may be too large for float16 and float8 where the average
// is not. So of those each element is divided before it is combined (as NCCL's ncclAvg and torch's
// DistributedDataParallel do), by the least power of two that is enough: that costs no bits, but of numbers that get
// less than the type's least normal number. The total is multiplied by what was divided too much.
TensorScaling ScalingOf(DataType type, ReduceOp op, double prescale, double postscale,
                        int rank_count, bool several_nodes) noexcept;

// Every destination gets (sources[0][i] * prescale op sources[1][i] * prescale op ... op partial[i]) scaled by
// `postscale`, from left to right: so it makes no difference to the bits of a type that is not rounded within one call
// (see reduce.h) whether the sources were combined before `partial` came. `partial` may be null: then it is left out.
// `sources` must not be empty; a destination may be exactly one of the sources, or `partial`. One pass over memory, but
// for prescales other than 1 (of narrow types' sums only where there is a partial sum or a postscale, too) and more
// than 16 sources, which go piece by piece through the first-level cache.
//
// Thread safety and errors: as ReduceManyToMany.
void CombineContributions(DataType type, ReduceOp op, double prescale, const void* partial,
                          std::span<const void* const> sources, std::span<void* const> destinations,
                          std::size_t count, Scaling postscale, Streaming streaming) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_COMBINE_H_
