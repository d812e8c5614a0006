// What becomes of one tensor on one node: all local ranks' contributions, scaled, combined, scaled again.
#ifndef RINGD_PROTO_REDUCE_COMBINE_H_
#define RINGD_PROTO_REDUCE_COMBINE_H_

#include <cstddef>
#include <span>

#include "proto/reduce/reduce.h"
#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Every destination gets (sources[0][i] * prescale op sources[1][i] * prescale op ... op partial[i]) scaled
// by `postscale`, from left to right: so it makes no difference to the bits of a type that is not rounded
// within one call (see reduce.h) whether the sources were combined before `partial` came. `partial` may be
// null: then it is left out. `sources` must not be empty; a destination may be exactly one of the sources,
// or `partial`. One pass over memory, but for prescales other than 1 and more
// than 16 sources, which go piece by piece through the first-level cache.
//
// Thread safety and errors: as ReduceManyToMany.
void CombineContributions(DataType type, ReduceOp op, double prescale, const void* partial,
                          std::span<const void* const> sources, std::span<void* const> destinations,
                          std::size_t count, Scaling postscale, Streaming streaming) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_COMBINE_H_
