// One pass over memory: what reduce.cc asks of the vectorised code. Internal to proto/reduce.
//
// The code of a family of types is a translation unit of its own, compiled once per instruction
// set; each entry below picks the best one for this processor.
#ifndef RINGD_PROTO_REDUCE_PASS_H_
#define RINGD_PROTO_REDUCE_PASS_H_

#include <cstddef>

#include "proto/reduce/reduce.h"

namespace ringd::reduce_internal {

// Invariants: type and op are valid; there is a source; destinations are each a source, `partial`,
// or apart from all.
struct Pass {
  DataType type;
  ReduceOp op;
  const void* const* sources;
  std::size_t source_count;
  double prescale;      // of each source
  const void* partial;  // comes last, as it is; may be null
  void* const* destinations;
  std::size_t destination_count;
  std::size_t count;
  Scaling scaling;
  bool past_caches;  // store without reading what is overwritten
  bool prefetch;     // ask for the sources ahead of the processor's own guess
};

void RunFloatPass(const Pass& pass) noexcept;    // float32, float64
void RunFloat16Pass(const Pass& pass) noexcept;  // float16, bfloat16
void RunFloat8Pass(const Pass& pass) noexcept;   // both float8
void RunIntegerPass(const Pass& pass) noexcept;  // integers and bool

// Copies `bytes` past the caches, then fences.
void CopyPastCaches(void* destination, const void* source, std::size_t bytes) noexcept;

}  // namespace ringd::reduce_internal

#endif  // RINGD_PROTO_REDUCE_PASS_H_
