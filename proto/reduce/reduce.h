// The arithmetic of a collective: combining, scaling and copying elements in ordinary memory.
//
// ringd and the trainers that help it call the same functions, so that it makes no difference to
// the result who reduced a chunk. They are vectorised for the processor found at run time; the
// result of an element does not depend on its position, its neighbours, the alignment or the
// instruction set (but for which of several NaNs, or of +0 and -0 in min and max, comes out), nor
// on the rounding mode and flushing of subnormals that the calling thread has set.
//
// Thread safety: any thread may call anything; two calls must not write the same bytes.
// All functions: no allocation, no system call, no lock; any alignment, any count including 0.
//   Counts are of elements, not bytes. A destination may be exactly one of the sources (the same
//   pointer); overlapping in part is not allowed. An invalid `type` or `op` writes nothing.
//
// What the operations mean, by type:
//
//   integers    Sum and product wrap modulo 2^bits.
//   bool        Any byte but 0 is true; reductions give 0 or 1. Sum and max are "or", product and
//               min are "and". Scaling leaves them alone.
//   float32/64  IEEE arithmetic, round to nearest even.
//   float16, bfloat16, float8
//               Within one call all sources are combined in float32 and rounded once, to nearest
//               even, subnormals kept. float16 and bfloat16 overflow to infinity, as IEEE and
//               PyTorch do.
//   float8_e4m3fn, float8_e5m2
//               A finite result too large for the type becomes its largest finite value, 448 or
//               57344 (as CUDA's conversions do; PyTorch's casts give NaN and infinity). Infinity
//               stays infinity in e5m2 and becomes NaN in e4m3fn, which has no infinity: the mark
//               of a broken step that loss scalers look for never turns into an ordinary number.
//   min, max    A NaN in any source gives NaN (IEEE 754-2019 minimum and maximum, unlike C's fmin).
//   average     The same as sum: dividing is the Scaling of the last pass.
#ifndef RINGD_PROTO_REDUCE_REDUCE_H_
#define RINGD_PROTO_REDUCE_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/types/data_type.h"
#include "proto/types/reduce_op.h"

namespace ringd {

// Multiplies by `factor`, then divides by `divisor`.
//
// Floating-point types: one multiplication by factor / divisor, in float64 for float64, else in
//   float32 (before the one rounding of the narrow types).
// Integers: first, unless factor is 1, value * factor in float64, truncated toward zero and clamped
//   to the type's range (NaN gives 0), as Horovod scales integers; then, unless divisor is 1, exact
//   integer division rounded toward minus infinity, as Horovod averages integers
//   (torch.floor_divide). So an average of int64 is exact.
struct Scaling {
  double factor = 1.0;
  std::int64_t divisor = 1;  // > 0

  // The scaling of an average over `rank_count` ranks.
  static constexpr Scaling AverageOf(std::int64_t rank_count) noexcept { return {1.0, rank_count}; }

  constexpr bool IsIdentity() const noexcept { return factor == 1.0 && divisor == 1; }
  bool operator==(const Scaling&) const = default;
};

// Whether the caches hold what a call reads and writes. Never changes the result.
enum class Streaming : std::uint8_t {
  // Decided by what this one call touches. For whole tensors.
  kAuto,
  // They do, or somebody reads the result next.
  kCached,
  // They don't: this is a piece of something large. Reads ahead, and writes past the caches
  // (non-temporal stores) where that is faster. Ends with a store fence, so that a release store
  // after the call publishes the result as usual.
  kPast,
};

// destination[i] = destination[i] op source[i].
void ReduceInto(DataType type, ReduceOp op, void* destination, const void* source,
                std::size_t count) noexcept;

// destination[i] = sources[0][i] op sources[1][i] op ..., in one pass over memory.
// Without sources nothing is written.
void ReduceMany(DataType type, ReduceOp op, std::span<const void* const> sources, void* destination,
                std::size_t count, Streaming streaming = Streaming::kAuto) noexcept;

// What becomes of one tensor on one node. Every destination gets (sources[0][i] * prescale op
// sources[1][i] * prescale op ... op partial[i]) scaled by `postscale`, in one pass over memory.
// `partial` may be null: then it is left out. A destination may be exactly one of the sources, or
// `partial`. From left to right: so it makes no difference to the bits of a type that is not
// rounded within one call whether the sources were combined before `partial` came. Elements are
// multiplied by prescale as Scaling{prescale, 1} does. Without sources nothing is written.
void CombineContributions(DataType type, ReduceOp op, double prescale, const void* partial,
                          std::span<const void* const> sources, std::span<void* const> destinations,
                          std::size_t count, Scaling postscale, Streaming streaming) noexcept;

// Every destination gets (sources[0][i] op sources[1][i] op ...) scaled, in one pass over memory.
// With sources == destinations this is a whole all-reduce in place. Without sources nothing is
// written.
void ReduceManyToMany(DataType type, ReduceOp op, std::span<const void* const> sources,
                      std::span<void* const> destinations, std::size_t count, Scaling scaling = {},
                      Streaming streaming = Streaming::kAuto) noexcept;

// data[i] = data[i] scaled.
void Scale(DataType type, void* data, std::size_t count, Scaling scaling) noexcept;

// destination[i] = source[i] scaled; an exact copy of the bytes if the scaling is the identity.
void CopyScaled(DataType type, void* destination, const void* source, std::size_t count,
                Scaling scaling = {}, Streaming streaming = Streaming::kAuto) noexcept;

}  // namespace ringd

#endif  // RINGD_PROTO_REDUCE_REDUCE_H_
